#include "text/chat_template/parser.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "text/chat_template/expression_parser.h"
#include "text/chat_template/text.h"
#include "text/chat_template/token_reader.h"

namespace heddle::jinja {
namespace {

using Type = Token::Type;
using Kind = Expression::Kind;

constexpr int kMaxBlockDepth = 60;

class Parser {
 public:
  Parser(std::string_view source, std::string_view where) : reader_(source, where) {}

  Template run() {
    Template result;
    result.body = statements({});
    result.names = expressions_.take_names();
    return result;
  }

 private:
  using Names = ExpressionParser::Names;
  using Surroundings = ExpressionParser::Surroundings;

  StatementPtr make_statement(Statement::Kind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  // Parses up to a tag in `enders`, whose name is then the next token; without enders, to the end of the template.
  Body statements(Names enders) {
    const Nested nested(reader_, block_depth_, kMaxBlockDepth, "max_block_depth");
    Body body;
    for (;;) {
      const Token& token = reader_.peek();
      switch (token.type) {
        case Type::end:
          if (enders.size() == 0) return body;
          reader_.fail(fmt::format(
              "Unexpected end of template. It was looking for the following tags: '{}'.{}", fmt::join(enders, "' or '"),
              open_tags_.empty() ? ""
                                 : fmt::format(" The innermost block that needs to be closed is '{}' of line {}.",
                                               open_tags_.back().text, open_tags_.back().line)));
        case Type::data:
          body.push_back(make_statement(Statement::Kind::text, token.line));
          body.back()->text = reader_.next().text;
          break;
        case Type::variable_begin: {
          reader_.next();
          body.push_back(make_statement(Statement::Kind::output, token.line));
          body.back()->expression = expressions_.tuple({});
          reader_.expect(Type::variable_end, "end of print statement");
          expressions_.refuse_unknown();
          break;
        }
        default: {
          reader_.next();
          if (reader_.peek().type == Type::name &&
              std::find(enders.begin(), enders.end(), std::string_view(reader_.peek().text)) != enders.end())
            return body;
          statement(body, enders);
          reader_.expect(Type::block_end, "end of statement block");
          expressions_.refuse_unknown();
        }
      }
    }
  }

  // The body of a tag: the rest of the tag, then statements up to one of `enders`.
  Body body_until(Names enders) {
    reader_.skip_op(":");
    reader_.expect(Type::block_end, "end of statement block");
    return statements(enders);
  }

  // A body with its own state.
  Body body_until(Names enders, Surroundings surroundings) {
    const Surroundings outer = expressions_.surroundings();
    expressions_.surroundings() = surroundings;
    Body body = body_until(enders);
    expressions_.surroundings() = outer;
    return body;
  }

  void statement(Body& body, Names enders) {
    if (reader_.peek().type != Type::name) reader_.fail("tag name expected");
    const Token tag = reader_.peek();
    open_tags_.push_back(tag);
    reader_.next();
    if (tag.text == "for")
      body.push_back(loop(tag.line));
    else if (tag.text == "if")
      body.push_back(condition(tag.line));
    else if (tag.text == "set")
      body.push_back(assignment(tag.line));
    else if (tag.text == "macro")
      body.push_back(macro(tag.line));
    else if (tag.text == "call")
      body.push_back(call_block(tag.line));
    else if (tag.text == "generation")
      body.push_back(generation(tag.line));
    else if (tag.text == "filter")
      body.push_back(filter_block(tag.line));
    else if (tag.text == "with")
      body.push_back(with(tag.line));
    else if (tag.text == "block")
      body.push_back(block(tag.line));
    else if (tag.text == "print")
      print(body, tag.line);
    else if (tag.text == "break" || tag.text == "continue")
      body.push_back(jump(tag));
    else if (tag.text == "autoescape")
      body.push_back(autoescape(tag.line));
    else if (tag.text == "include" || tag.text == "import" || tag.text == "from" || tag.text == "extends")
      reader_.fail(fmt::format("the tag '{}' reads another template, which a chat template cannot", tag.text),
                   tag.line);
    else
      reader_.fail(fmt::format("Encountered unknown tag {}.{}", in_quotes(tag.text),
                               enders.size() == 0 ? ""
                                                  : fmt::format(" It was looking for the following tags: '{}'.",
                                                                fmt::join(enders, "' or '"))),
                   tag.line);
    open_tags_.pop_back();
  }

  StatementPtr loop(int line) {
    StatementPtr loop = make_statement(Statement::Kind::loop, line);
    loop->target = expressions_.target({.enders = {"in"}});
    refuse_loop_as_target(*loop->target);
    loop->name_id = expressions_.name_id("loop");
    reader_.expect_name("in");
    loop->expression = expressions_.tuple({.enders = {"recursive"}, .conditional = false});
    const Surroundings outer = expressions_.surroundings();
    expressions_.surroundings().soft = false;
    if (reader_.skip_name("if")) loop->test = expressions_.expression();
    expressions_.surroundings() = outer;
    loop->recursive = reader_.skip_name("recursive");
    loop->body = body_until({"endfor", "else"}, {.in_loop = true, .soft = false});
    if (reader_.next().text == "else") {
      loop->otherwise = body_until({"endfor"}, {.in_loop = outer.in_loop && !loop->recursive, .soft = false});
      reader_.next();
    }
    return loop;
  }

  void refuse_loop_as_target(const Expression& target) const {
    if (target.kind == Kind::name && target.name == "loop")
      reader_.fail("Can't assign to special loop variable in for-loop target", target.line);
    for (const ExpressionPtr& part : target.parts) refuse_loop_as_target(*part);
  }

  StatementPtr condition(int line) {
    StatementPtr whole = make_statement(Statement::Kind::condition, line);
    const Surroundings outer = expressions_.surroundings();
    expressions_.surroundings().soft = true;
    for (;;) {
      ExpressionPtr test = expressions_.tuple({.conditional = false});
      whole->branches.push_back({std::move(test), body_until({"elif", "else", "endif"})});
      const std::string tag = reader_.next().text;
      if (tag == "elif") continue;
      if (tag == "else") {
        whole->otherwise = body_until({"endif"});
        reader_.next();
      }
      break;
    }
    expressions_.surroundings() = outer;
    return whole;
  }

  StatementPtr assignment(int line) {
    ExpressionPtr to = expressions_.target({.attributes = true});
    if (reader_.skip_op("=")) {
      StatementPtr assign = make_statement(Statement::Kind::assign, line);
      assign->target = std::move(to);
      assign->expression = expressions_.tuple({});
      return assign;
    }
    StatementPtr assign = make_statement(Statement::Kind::assign_block, line);
    assign->target = std::move(to);
    assign->expression = expressions_.filters(nullptr);
    assign->body = body_until({"endset"}, {.in_loop = expressions_.surroundings().in_loop, .soft = false});
    reader_.next();
    return assign;
  }

  void signature(Statement& statement) {
    reader_.expect_op("(");
    while (!reader_.at_op(")")) {
      if (!statement.parameters.empty()) reader_.expect_op(",");
      const std::string name = reader_.any_name();
      for (const Parameter& parameter : statement.parameters)
        if (parameter.name == name)
          reader_.fail(fmt::format("duplicate argument {} in function definition", in_quotes(name)));
      ExpressionPtr fallback;
      if (reader_.skip_op("="))
        fallback = expressions_.expression();
      else if (!statement.parameters.empty() && statement.parameters.back().fallback)
        reader_.fail("non-default argument follows default argument");
      statement.parameters.push_back({name, expressions_.name_id(name), std::move(fallback)});
    }
    reader_.next();
  }

  void macro_body(Statement& statement, Names enders) {
    expressions_.macros().push_back(&statement.extras);
    statement.body = body_until(enders, {});
    expressions_.macros().pop_back();
    reader_.next();
    for (const Parameter& parameter : statement.parameters) {
      if (parameter.name == "caller") {
        if (statement.extras.caller && !parameter.fallback)
          reader_.fail(
              "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a "
              "default.",
              statement.line);
        statement.extras.caller = false;
      }
      if (parameter.name == "kwargs") statement.extras.kwargs = false;
      if (parameter.name == "varargs") statement.extras.varargs = false;
    }
  }

  StatementPtr macro(int line) {
    StatementPtr macro = make_statement(Statement::Kind::macro, line);
    macro->name = reader_.any_name();
    macro->name_id = expressions_.name_id(macro->name);
    signature(*macro);
    macro_body(*macro, {"endmacro"});
    return macro;
  }

  StatementPtr call_block(int line) {
    StatementPtr block = make_statement(Statement::Kind::call, line);
    if (reader_.at_op("(")) signature(*block);
    block->expression = expressions_.expression();
    if (block->expression->kind != Kind::call) reader_.fail("expected call", line);
    macro_body(*block, {"endcall"});
    return block;
  }

  StatementPtr generation(int line) {
    StatementPtr block = make_statement(Statement::Kind::generation, line);
    block->body = body_until({"endgeneration"}, {});
    reader_.next();
    return block;
  }

  StatementPtr filter_block(int line) {
    StatementPtr block = make_statement(Statement::Kind::filter, line);
    block->expression = expressions_.block_filters();
    block->body = body_until({"endfilter"}, {.in_loop = expressions_.surroundings().in_loop, .soft = false});
    reader_.next();
    return block;
  }

  StatementPtr with(int line) {
    StatementPtr block = make_statement(Statement::Kind::with, line);
    while (reader_.peek().type != Type::block_end) {
      if (!block->assignments.empty()) reader_.expect_op(",");
      ExpressionPtr to = expressions_.target({});
      reader_.expect_op("=");
      block->assignments.emplace_back(std::move(to), expressions_.expression());
    }
    block->body = body_until({"endwith"}, {.in_loop = expressions_.surroundings().in_loop, .soft = false});
    reader_.next();
    return block;
  }

  StatementPtr block(int line) {
    StatementPtr block = make_statement(Statement::Kind::block, line);
    block->name = reader_.any_name();
    block->recursive = reader_.skip_name("scoped");
    if (reader_.at_name("required")) reader_.fail("required blocks are not supported");
    block->body = body_until({"endblock"}, {});
    reader_.next();
    reader_.skip_name(block->name);
    return block;
  }

  // Autoescape is already off; turning it on would affect everything.
  StatementPtr autoescape(int line) {
    const ExpressionPtr on = expressions_.expression();
    if (on->kind != Kind::constant || truth(on->constant)) reader_.fail("autoescape is not supported", line);
    StatementPtr block = make_statement(Statement::Kind::with, line);
    block->body = body_until({"endautoescape"}, {.in_loop = expressions_.surroundings().in_loop, .soft = false});
    reader_.next();
    return block;
  }

  void print(Body& body, int line) {
    bool first = true;
    while (reader_.peek().type != Type::block_end) {
      if (!first) reader_.expect_op(",");
      first = false;
      body.push_back(make_statement(Statement::Kind::output, line));
      body.back()->expression = expressions_.expression();
    }
  }

  StatementPtr jump(const Token& tag) {
    if (!expressions_.surroundings().in_loop) reader_.fail(fmt::format("'{}' outside loop", tag.text), tag.line);
    return make_statement(tag.text == "break" ? Statement::Kind::stop : Statement::Kind::next, tag.line);
  }

  TokenReader reader_;
  ExpressionParser expressions_{reader_};
  std::vector<Token> open_tags_;
  int block_depth_ = 0;
};

}  // namespace

Template parse_template(std::string_view source, std::string_view where) {
  return Parser(source, where).run();
}

}  // namespace heddle::jinja
