// A parsed template. The parser bounds the nesting, so walking and destroying the tree is bounded, too.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/chat_template/value.h"

namespace heddle::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  ExpressionPtr rest, keyword_rest;  // *rest, **keyword_rest
};

struct Expression {
  enum class Kind {
    constant,
    name,       // `name`; as a target it is assigned
    attribute,  // parts[0].name; of a namespace as a target
    item,       // parts[0][parts[1]]
    slice,      // parts[0]:parts[1]:parts[2], each may be null; only inside item
    call,       // parts[0](arguments)
    filter,     // parts[0] | name(arguments); parts[0] is null when a block is filtered
    test,       // parts[0] is name(arguments)
    list,
    tuple,
    dict,  // key, value, key, value ...
    negative,
    positive,
    logical_not,
    conditional,  // parts[0] if parts[1] else parts[2], which may be null
    // The rest: parts[0] operators[0] parts[1] operators[1] parts[2] ..., flat, whatever the length.
    arithmetic,  // left to right
    concat,
    logical_and,
    logical_or,
    compare,
  };
  enum class Operator {
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    modulo,
    power,
    concat,
    logical_and,
    logical_or,
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    in,
    not_in,
  };

  Kind kind;
  int line;
  int depth = 1;     // of the tree below
  int name_id = -1;  // of `name`, where it is a variable
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> parts;
  std::vector<Operator> operators;
  Arguments arguments;
};

struct Statement;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Parameter {
  std::string name;
  int name_id;
  ExpressionPtr fallback;  // null: none
};

// Variables that a macro's body uses beside its parameters.
struct MacroExtras {
  bool caller = false, kwargs = false, varargs = false;
};

struct Statement {
  enum class Kind {
    text,          // `text`
    output,        // expression
    condition,     // branches, otherwise
    loop,          // for target in expression if test: body; otherwise
    assign,        // set target = expression
    assign_block,  // set target | filter: body
    macro,         // name(parameters): body
    call,          // call(parameters) expression: body
    generation,    // body, in a scope of its own
    filter,        // expression filters body
    with,          // targets = values: body
    block,         // body, in the template's own scope
    stop,          // break
    next,          // continue
  };

  Kind kind;
  int line;
  std::string text;
  std::string name;
  int name_id = -1;
  ExpressionPtr target, expression, test;
  bool recursive = false;
  std::vector<Branch> branches;
  Body body, otherwise;
  std::vector<Parameter> parameters;
  MacroExtras extras;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
};

struct Template {
  Body body;
  std::vector<std::string> names;  // by name_id
};

}  // namespace heddle::jinja
