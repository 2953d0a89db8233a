// The interpreter's evaluation of expressions.
#include <fmt/format.h>

#include "text/chat_template/filters.h"
#include "text/chat_template/interpreter.h"
#include "text/chat_template/python.h"
#include "text/chat_template/tests.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {

Value Interpreter::evaluate_in(const std::shared_ptr<Scope>& scope, const Expression& expression) {
  if (scope == scope_) return evaluate(expression);
  std::shared_ptr<Scope> outer = std::exchange(scope_, scope);
  try {
    Value value = evaluate(expression);
    scope_ = std::move(outer);
    return value;
  } catch (...) {
    scope_ = std::move(outer);
    throw;
  }
}

Value Interpreter::evaluate(const Expression& expression) {
  const Level level(meter_);
  meter_.step();
  line_ = expression.line;
  return evaluate_kind(expression);
}

Value Interpreter::evaluate_kind(const Expression& expression) {
  using Op = Expression::Kind;
  const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i]); };
  switch (expression.kind) {
    case Op::constant:
      return expression.constant;
    case Op::name:
      return lookup(expression);
    case Op::attribute:
      return attribute(part(0), expression.name);
    case Op::item:
      return evaluate_item(expression);
    case Op::call:
      return evaluate_call(expression);
    case Op::filter:
      return evaluate_filter(expression, nullptr);
    case Op::test: {
      const Value value = part(0);
      CallArguments arguments = evaluate(expression.arguments);
      if (!find_test(expression.name))
        throw TemplateError(fmt::format("No test named {} found.", in_quotes(expression.name)));
      return Value(apply_test(expression.name, value, std::move(arguments)));
    }
    case Op::list:
      return Value::list(meter_, evaluate_all(expression.parts));
    case Op::tuple:
      return Value::tuple(meter_, evaluate_all(expression.parts));
    case Op::dict:
      return evaluate_dict(expression);
    case Op::negative:
      return negate(meter_, part(0));
    case Op::positive:
      return positive(meter_, part(0));
    case Op::logical_not:
      return Value(!truth(part(0)));
    case Op::concat:
      return evaluate_concat(expression);
    case Op::logical_and:
    case Op::logical_or:
      return evaluate_logical(expression);
    case Op::arithmetic:
      return evaluate_arithmetic(expression);
    case Op::compare:
      return evaluate_compare(expression);
    case Op::conditional:
      if (truth(part(1))) return part(0);
      if (expression.parts[2]) return part(2);
      return Value::undefined(
          meter_, fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.",
                              expression.line));
    case Op::slice:
      throw TemplateError("a slice among several subscripts is not supported");
  }
  return {};
}

// The first part that decides the result, or the last part.
Value Interpreter::evaluate_logical(const Expression& expression) {
  const bool deciding = expression.kind == Expression::Kind::logical_or;
  Value value;
  for (const ExpressionPtr& part : expression.parts) {
    value = evaluate(*part);
    if (part != expression.parts.back() && truth(value) == deciding) break;
  }
  return value;
}

Value Interpreter::evaluate_arithmetic(const Expression& expression) {
  using Operator = Expression::Operator;
  Value left = evaluate(*expression.parts[0]);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    const Value right = evaluate(*expression.parts[i + 1]);
    line_ = expression.line;
    switch (expression.operators[i]) {
      case Operator::add:
        left = add(meter_, left, right);
        break;
      case Operator::subtract:
        left = subtract(meter_, left, right);
        break;
      case Operator::multiply:
        left = multiply(meter_, left, right);
        break;
      case Operator::divide:
        left = divide(meter_, left, right);
        break;
      case Operator::floor_divide:
        left = floor_divide(meter_, left, right);
        break;
      case Operator::modulo:
        left = modulo(meter_, left, right);
        break;
      default:
        left = power(meter_, left, right);
    }
  }
  return left;
}

Value Interpreter::evaluate_item(const Expression& expression) {
  const Value value = evaluate(*expression.parts[0]);
  const Expression& index = *expression.parts[1];
  if (index.kind != Expression::Kind::slice) return subscript(value, evaluate(index));
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i)
    if (index.parts[i]) bounds[i] = evaluate(*index.parts[i]);
  line_ = expression.line;
  if (std::optional<Value> part = slice(meter_, value, bounds[0], bounds[1], bounds[2])) return *std::move(part);
  throw TemplateError(fmt::format("'{}' object cannot be sliced so", type_name(value)));
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) values.push_back(evaluate(*expression));
  return values;
}

CallArguments Interpreter::evaluate(const Arguments& arguments) {
  CallArguments result;
  result.positional = evaluate_all(arguments.positional);
  for (const auto& [name, value] : arguments.keyword) result.keyword.emplace_back(name, evaluate(*value));
  if (arguments.rest) {
    std::vector<Value> rest = iterate(meter_, evaluate(*arguments.rest));
    result.positional.insert(result.positional.end(), rest.begin(), rest.end());
  }
  if (arguments.keyword_rest) {
    const Value rest = evaluate(*arguments.keyword_rest);
    require_defined(rest);
    if (!rest.is(Kind::dict))
      throw TemplateError(fmt::format("argument after ** must be a mapping, not {}", type_name(rest)));
    for (const auto& [key, value] : rest.dict().members) {
      if (!key.is_string()) throw TemplateError("keywords must be strings");
      meter_.step(result.keyword.size() / 8);
      for (const auto& keyword : result.keyword)
        if (keyword.first == key.string())
          throw TemplateError(fmt::format("got multiple values for keyword argument {}", in_quotes(key.string())));
      result.keyword.emplace_back(std::string(key.string()), value);
    }
  }
  return result;
}

Value Interpreter::evaluate_call(const Expression& expression) {
  const Value callee = evaluate(*expression.parts[0]);
  CallArguments arguments = evaluate(expression.arguments);
  line_ = expression.line;
  return call(callee, std::move(arguments));
}

// For a block, the innermost part of a chain of filters is null: `piped` is its value.
Value Interpreter::evaluate_filter(const Expression& expression, const Value* piped) {
  const Level level(meter_);
  const ExpressionPtr& before = expression.parts[0];
  const Value value = !before                                             ? *piped
                      : piped && before->kind == Expression::Kind::filter ? evaluate_filter(*before, piped)
                                                                          : evaluate(*before);
  CallArguments arguments = evaluate(expression.arguments);
  line_ = expression.line;
  if (!find_filter(expression.name)) throw TemplateError(unknown_filter(expression.name, " found."));
  return apply_filter(expression.name, value, std::move(arguments));
}

Value Interpreter::evaluate_compare(const Expression& expression) {
  using Operator = Expression::Operator;
  Value left = evaluate(*expression.parts[0]);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    line_ = expression.line;
    const bool holds = [&] {
      switch (expression.operators[i]) {
        case Operator::equal:
          return equal(meter_, left, right);
        case Operator::not_equal:
          return !equal(meter_, left, right);
        case Operator::less:
          return ordered(meter_, left, right, Order::less);
        case Operator::less_equal:
          return ordered(meter_, left, right, Order::less_equal);
        case Operator::greater:
          return ordered(meter_, left, right, Order::greater);
        case Operator::greater_equal:
          return ordered(meter_, left, right, Order::greater_equal);
        case Operator::in:
          return contains(meter_, right, left);
        default:
          return !contains(meter_, right, left);
      }
    }();
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::evaluate_concat(const Expression& expression) {
  std::string result;
  for (const ExpressionPtr& part : expression.parts) {
    const Value value = evaluate(*part);
    if (value.is_string()) {
      meter_.expect(result.size() + value.string().size());
      result += value.string();
    } else {
      result += to_text(meter_, value);
    }
  }
  return text(std::move(result));
}

Value Interpreter::evaluate_dict(const Expression& expression) {
  Dict::Members members;
  members.reserve(expression.parts.size() / 2);
  for (std::size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    Value key = evaluate(*expression.parts[i]);
    members.emplace_back(std::move(key), evaluate(*expression.parts[i + 1]));
  }
  return Dict::make(meter_, std::move(members));
}

}  // namespace heddle::jinja
