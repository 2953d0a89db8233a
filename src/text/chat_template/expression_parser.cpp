#include "text/chat_template/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/chat_template/filters.h"
#include "text/chat_template/tests.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

using Type = Token::Type;

constexpr int kMaxDepth = 150;
constexpr int kMaxRecursion = 300;  // a pair of brackets takes three levels
constexpr std::string_view kRecursionLimit = "max_expression_recursion";
constexpr std::array<std::string_view, 6> kReserved = {"true", "false", "none", "True", "False", "None"};

}  // namespace

ExpressionPtr ExpressionParser::make(Kind kind, int line) {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = line;
  return expression;
}

void ExpressionParser::adopt(Expression& expression, ExpressionPtr part) {
  if (part) deepen(expression, *part);
  expression.parts.push_back(std::move(part));
}

void ExpressionParser::deepen(Expression& expression, const Expression& part) {
  expression.depth = std::max(expression.depth, part.depth + 1);
  if (expression.depth > kMaxDepth)
    reader_.fail(fmt::format("an expression nested deeper than max_expression_depth = {} levels", kMaxDepth));
}

template <class SkipOperator>
ExpressionPtr ExpressionParser::chain(Kind kind, Operand operand, SkipOperator skip) {
  const int line = reader_.peek().line;
  ExpressionPtr first = (this->*operand)();
  ExpressionPtr whole;
  while (const std::optional<Operator> op = skip()) {
    if (!whole) whole = make(kind, line, std::move(first));
    whole->operators.push_back(*op);
    adopt(*whole, (this->*operand)());
  }
  return whole ? std::move(whole) : std::move(first);
}

int ExpressionParser::name_id(const std::string& name) {
  const auto [place, inserted] = name_ids_.emplace(name, static_cast<int>(names_.size()));
  if (inserted) names_.push_back(name);
  return place->second;
}

bool ExpressionParser::ends_at(Names names) const {
  return std::ranges::any_of(names, [&](std::string_view name) { return reader_.at_name(name); });
}

ExpressionPtr ExpressionParser::constant(Value value, int line) {
  ExpressionPtr expression = make(Kind::constant, line);
  expression->constant = std::move(value);
  return expression;
}

ExpressionPtr ExpressionParser::variable(const std::string& name, int line) {
  ExpressionPtr expression = make(Kind::name, line);
  expression->name = name;
  expression->name_id = name_id(name);
  for (MacroExtras* extras : macros_) {
    if (name == "caller") extras->caller = true;
    if (name == "kwargs") extras->kwargs = true;
    if (name == "varargs") extras->varargs = true;
  }
  return expression;
}

ExpressionPtr ExpressionParser::expression() {
  const Nested nested(reader_, recursion_, kMaxRecursion, kRecursionLimit);
  int line = reader_.peek().line;
  const std::string unknown_before = unknown_;
  ExpressionPtr value = disjunction();
  while (reader_.at_name("if")) {
    reader_.next();
    unknown_ = unknown_before;
    const Surroundings outer = surroundings_;
    surroundings_.soft = true;
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = reader_.skip_name("else") ? expression() : nullptr;
    surroundings_ = outer;
    value = make(Kind::conditional, line, std::move(value), std::move(condition), std::move(otherwise));
    line = reader_.peek().line;
  }
  return value;
}

ExpressionPtr ExpressionParser::disjunction() {
  return chain(Kind::logical_or, &ExpressionParser::conjunction,
               [this] { return reader_.skip_name("or") ? std::optional(Operator::logical_or) : std::nullopt; });
}

ExpressionPtr ExpressionParser::conjunction() {
  return chain(Kind::logical_and, &ExpressionParser::negation,
               [this] { return reader_.skip_name("and") ? std::optional(Operator::logical_and) : std::nullopt; });
}

ExpressionPtr ExpressionParser::negation() {
  const Nested nested(reader_, recursion_, kMaxRecursion, kRecursionLimit);
  const int line = reader_.peek().line;
  if (reader_.skip_name("not")) return make(Kind::logical_not, line, negation());
  return comparison();
}

ExpressionPtr ExpressionParser::comparison() {
  return chain(Kind::compare, &ExpressionParser::sum, [this]() -> std::optional<Operator> {
    if (reader_.at_name("not") && reader_.at_name("in", 1)) {
      reader_.next(), reader_.next();
      return Operator::not_in;
    }
    if (reader_.skip_name("in")) return Operator::in;
    return skip_operator({{"==", Operator::equal},
                          {"!=", Operator::not_equal},
                          {"<", Operator::less},
                          {"<=", Operator::less_equal},
                          {">", Operator::greater},
                          {">=", Operator::greater_equal}});
  });
}

ExpressionPtr ExpressionParser::sum() {
  return chain(Kind::arithmetic, &ExpressionParser::concatenation, [this] {
    return skip_operator({{"+", Operator::add}, {"-", Operator::subtract}});
  });
}

ExpressionPtr ExpressionParser::concatenation() {
  return chain(Kind::concat, &ExpressionParser::product, [this] { return skip_operator({{"~", Operator::concat}}); });
}

ExpressionPtr ExpressionParser::product() {
  return chain(Kind::arithmetic, &ExpressionParser::exponentiation, [this] {
    return skip_operator(
        {{"*", Operator::multiply}, {"/", Operator::divide}, {"//", Operator::floor_divide}, {"%", Operator::modulo}});
  });
}

// Left to right, as in jinja2.
ExpressionPtr ExpressionParser::exponentiation() {
  return chain(Kind::arithmetic, &ExpressionParser::filtered_unary, [this] {
    return skip_operator({{"**", Operator::power}});
  });
}

std::optional<ExpressionParser::Operator> ExpressionParser::skip_operator(
    std::initializer_list<std::pair<std::string_view, Operator>> operators) {
  for (const auto& [text, op] : operators)
    if (reader_.skip_op(text)) return op;
  return std::nullopt;
}

ExpressionPtr ExpressionParser::filtered_unary() {
  return filters_and_tests(unary());
}

ExpressionPtr ExpressionParser::unary() {
  const Nested nested(reader_, recursion_, kMaxRecursion, kRecursionLimit);
  const int line = reader_.peek().line;
  ExpressionPtr value = reader_.skip_op("-")   ? make(Kind::negative, line, unary())
                        : reader_.skip_op("+") ? make(Kind::positive, line, unary())
                                               : primary();
  return postfix(std::move(value));
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = reader_.peek();
  const int line = token.line;
  switch (token.type) {
    case Type::name: {
      const std::string name = reader_.next().text;
      if (name == "true" || name == "True") return constant(Value(true), line);
      if (name == "false" || name == "False") return constant(Value(false), line);
      if (name == "none" || name == "None") return constant(Value(), line);
      return variable(name, line);
    }
    case Type::string: {
      std::string text;
      while (reader_.peek().type == Type::string) text += reader_.next().text;
      return constant(Value::text(nullptr, std::move(text)), line);
    }
    case Type::integer:
      return constant(Value(reader_.next().integer), line);
    case Type::real:
      return constant(Value(reader_.next().real), line);
    default:
      break;
  }
  if (reader_.skip_op("(")) {
    ExpressionPtr inside = tuple({.may_be_empty = true});
    reader_.expect_op(")");
    return inside;
  }
  if (reader_.at_op("[")) return list();
  if (reader_.at_op("{")) return dict();
  reader_.fail(fmt::format("unexpected {}", in_quotes(describe(token))));
}

ExpressionPtr ExpressionParser::list() {
  ExpressionPtr list = make(Kind::list, reader_.next().line);
  while (!reader_.at_op("]")) {
    if (!list->parts.empty()) reader_.expect_op(",");
    if (reader_.at_op("]")) break;
    adopt(*list, expression());
  }
  reader_.next();
  return list;
}

ExpressionPtr ExpressionParser::dict() {
  ExpressionPtr dict = make(Kind::dict, reader_.next().line);
  while (!reader_.at_op("}")) {
    if (!dict->parts.empty()) reader_.expect_op(",");
    if (reader_.at_op("}")) break;
    adopt(*dict, expression());
    reader_.expect_op(":");
    adopt(*dict, expression());
  }
  reader_.next();
  return dict;
}

ExpressionPtr ExpressionParser::tuple(const TupleRules& rules) {
  const int line = reader_.peek().line;
  ExpressionPtr whole = make(Kind::tuple, line);
  bool several = false;
  const auto ends = [&] {
    return reader_.peek().type == Type::variable_end || reader_.peek().type == Type::block_end || reader_.at_op(")") ||
           ends_at(rules.enders);
  };
  for (;;) {
    if (!whole->parts.empty()) reader_.expect_op(",");
    if (ends()) break;
    adopt(*whole, rules.conditional ? expression() : disjunction());
    if (!reader_.at_op(",")) break;
    several = true;
  }
  if (several) return whole;
  if (!whole->parts.empty()) return std::move(whole->parts[0]);
  if (!rules.may_be_empty)
    reader_.fail(fmt::format("Expected an expression, got {}", in_quotes(describe(reader_.peek()))));
  return whole;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  for (;;) {
    if (reader_.at_op(".") || reader_.at_op("["))
      value = subscript(std::move(value));
    else if (reader_.at_op("("))
      value = call(std::move(value));
    else
      return value;
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr value) {
  for (;;) {
    if (reader_.at_op("|"))
      value = filters(std::move(value));
    else if (reader_.at_name("is"))
      value = test(std::move(value));
    else if (reader_.at_op("("))
      value = call(std::move(value));
    else
      return value;
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  const int line = reader_.peek().line;
  if (reader_.skip_op(".")) {
    if (reader_.peek().type == Type::integer) {
      ExpressionPtr index = constant(Value(reader_.peek().integer), line);
      reader_.next();
      return make(Kind::item, line, std::move(value), std::move(index));
    }
    if (reader_.peek().type != Type::name) reader_.fail("expected name or number");
    ExpressionPtr attribute = make(Kind::attribute, line, std::move(value));
    attribute->name = reader_.next().text;
    return attribute;
  }
  reader_.next();
  ExpressionPtr several = make(Kind::tuple, line);
  while (!reader_.at_op("]")) {
    if (!several->parts.empty()) reader_.expect_op(",");
    adopt(*several, subscribed());
  }
  reader_.next();
  ExpressionPtr index = several->parts.size() == 1 ? std::move(several->parts[0]) : std::move(several);
  return make(Kind::item, line, std::move(value), std::move(index));
}

ExpressionPtr ExpressionParser::subscribed() {
  const int line = reader_.peek().line;
  ExpressionPtr first = reader_.at_op(":") ? nullptr : expression();
  if (!reader_.skip_op(":")) return first;
  const auto part = [&] {
    return reader_.at_op(":") || reader_.at_op("]") || reader_.at_op(",") ? nullptr : expression();
  };
  ExpressionPtr second = part();
  ExpressionPtr third = reader_.skip_op(":") ? part() : nullptr;
  return make(Kind::slice, line, std::move(first), std::move(second), std::move(third));
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  ExpressionPtr whole = make(Kind::call, reader_.peek().line, std::move(callee));
  arguments(*whole);
  return whole;
}

void ExpressionParser::arguments(Expression& whole) {
  const int line = reader_.peek().line;
  reader_.expect_op("(");
  Arguments& arguments = whole.arguments;
  const auto ensure = [&](bool ok) {
    if (!ok) reader_.fail("invalid syntax for function call expression", line);
  };
  const auto argument = [&] {
    ExpressionPtr value = expression();
    deepen(whole, *value);
    return value;
  };
  for (bool first = true; !reader_.at_op(")"); first = false) {
    if (!first) reader_.expect_op(",");
    if (reader_.at_op(")")) break;
    if (reader_.skip_op("*")) {
      ensure(!arguments.rest && !arguments.keyword_rest);
      arguments.rest = argument();
    } else if (reader_.skip_op("**")) {
      ensure(!arguments.keyword_rest);
      arguments.keyword_rest = argument();
    } else if (reader_.peek().type == Type::name && reader_.at_op("=", 1)) {
      ensure(!arguments.keyword_rest);
      std::string name = reader_.next().text;
      reader_.next();
      for (const auto& keyword : arguments.keyword)
        if (keyword.first == name) reader_.fail(fmt::format("keyword argument repeated: {}", name));
      arguments.keyword.emplace_back(std::move(name), argument());
    } else {
      ensure(!arguments.rest && !arguments.keyword_rest && arguments.keyword.empty());
      arguments.positional.push_back(argument());
    }
  }
  reader_.expect_op(")");
}

void ExpressionParser::note_unknown(std::string message, int line) {
  if (surroundings_.soft || !unknown_.empty()) return;
  unknown_ = std::move(message);
  unknown_line_ = line;
}

void ExpressionParser::refuse_unknown() const {
  if (!unknown_.empty()) reader_.fail(unknown_, unknown_line_);
}

std::string ExpressionParser::dotted_name() {
  std::string name = reader_.any_name();
  while (reader_.skip_op(".")) name += "." + reader_.any_name();
  return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr value) {
  while (reader_.skip_op("|")) value = filter(std::move(value));
  return value;
}

ExpressionPtr ExpressionParser::block_filters() {
  return filters(filter(nullptr));
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr value) {
  const int line = reader_.peek().line;
  std::string name = dotted_name();
  if (!find_filter(name)) note_unknown(unknown_filter(name), line);
  ExpressionPtr filter = make(Kind::filter, line, std::move(value));
  filter->name = std::move(name);
  if (reader_.at_op("(")) arguments(*filter);
  return filter;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const int line = reader_.next().line;
  const bool negated = reader_.skip_name("not");
  std::string name = dotted_name();
  if (!find_test(name)) note_unknown(fmt::format("No test named {}.", in_quotes(name)), line);
  ExpressionPtr test = make(Kind::test, line, std::move(value));
  test->name = std::move(name);
  const Type type = reader_.peek().type;
  if (reader_.at_op("(")) {
    arguments(*test);
  } else if ((type == Type::name || type == Type::string || type == Type::integer || type == Type::real ||
              reader_.at_op("[") || reader_.at_op("{")) &&
             !reader_.at_name("else") && !reader_.at_name("or") && !reader_.at_name("and")) {
    if (reader_.at_name("is")) reader_.fail("You cannot chain multiple tests with is");
    ExpressionPtr argument = postfix(primary());
    deepen(*test, *argument);
    test->arguments.positional.push_back(std::move(argument));
  }
  return negated ? make(Kind::logical_not, line, std::move(test)) : std::move(test);
}

// ---- targets of assignments

ExpressionPtr ExpressionParser::target_primary(bool attributes) {
  const Nested nested(reader_, recursion_, kMaxRecursion, kRecursionLimit);
  const int line = reader_.peek().line;
  if (reader_.peek().type == Type::name) {
    const std::string name = reader_.peek().text;
    if (attributes && reader_.at_op(".", 1)) {
      reader_.next(), reader_.next();
      ExpressionPtr attribute = make(Kind::attribute, line, variable(name, line));
      attribute->name = reader_.any_name();
      return attribute;
    }
    if (std::ranges::find(kReserved, name) != kReserved.end()) reader_.fail("can't assign to 'const'");
    reader_.next();
    ExpressionPtr target = make(Kind::name, line);
    target->name = name;
    target->name_id = name_id(name);
    return target;
  }
  if (reader_.skip_op("(")) {
    ExpressionPtr inside = target({.attributes = attributes});
    reader_.expect_op(")");
    return inside;
  }
  reader_.fail(fmt::format("can't assign to {}", in_quotes(describe(reader_.peek()))));
}

ExpressionPtr ExpressionParser::target(const TargetRules& rules) {
  const int line = reader_.peek().line;
  ExpressionPtr whole = make(Kind::tuple, line);
  bool several = false;
  const auto ends = [&] {
    return reader_.peek().type == Type::block_end || reader_.at_op(")") || reader_.at_op("=") || ends_at(rules.enders);
  };
  for (;;) {
    if (!whole->parts.empty()) reader_.expect_op(",");
    if (ends()) break;
    adopt(*whole, target_primary(rules.attributes));
    if (!reader_.at_op(",")) break;
    several = true;
  }
  if (whole->parts.empty())
    reader_.fail(fmt::format("Expected an expression, got {}", in_quotes(describe(reader_.peek()))));
  return several ? std::move(whole) : std::move(whole->parts[0]);
}

}  // namespace heddle::jinja
