#include "engine/chat_template/parser.h"

#include <algorithm>
#include <initializer_list>
#include <map>

#include "base/error.h"
#include "base/printable.h"
#include "engine/chat_template/filters.h"
#include "engine/chat_template/lexer.h"
#include "engine/chat_template/tests.h"
#include "engine/chat_template/text.h"

namespace heddle::jinja {
namespace {

using Type = Token::Type;
using Kind = Expression::Kind;

constexpr int kMaxExpressionDepth = 150;
constexpr int kMaxRecursion = 300;  // of the parser; a pair of brackets takes three
constexpr int kMaxBlockDepth = 60;

constexpr const char* kReserved[] = {"true", "false", "none", "True", "False", "None"};

class Parser {
 public:
  Parser(std::string_view source, std::string_view where) : where_(where), tokens_(tokenize(source, where)) {}

  Template run() {
    result_.body = statements({});
    return std::move(result_);
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Counts levels of the parser's own recursion.
  class Nested {
   public:
    Nested(Parser& parser, int& depth, int most) : depth_(depth) {
      if (depth_ >= most) parser.fail(fmt::format("nested deeper than {} levels (a limit of this interpreter)", most));
      ++depth_;
    }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() { --depth_; }

   private:
    int& depth_;
  };

  // What holds inside one macro, loop or block; put back at its end.
  struct Surroundings {
    bool in_loop = false;  // break and continue may stand here
    bool soft = false;     // inside an if: a filter that does not exist is an error only when it runs
  };

  [[noreturn]] void fail(std::string_view message, int line = 0) const {
    throw_error<InputError>("{}, line {}: {}", where_, line ? line : peek().line, printable(message, kMaxMessageBytes));
  }

  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool at_op(std::string_view op, std::size_t ahead = 0) const {
    return peek(ahead).type == Type::op && peek(ahead).text == op;
  }
  bool at_name(std::string_view name, std::size_t ahead = 0) const {
    return peek(ahead).type == Type::name && peek(ahead).text == name;
  }
  bool skip_op(std::string_view op) { return at_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return at_name(name) && (next(), true); }

  static std::string describe(const Token& token) {
    switch (token.type) {
      case Type::data:
        return "template data / text";
      case Type::variable_begin:
        return "begin of print statement";
      case Type::variable_end:
        return "end of print statement";
      case Type::block_begin:
        return "begin of statement block";
      case Type::block_end:
        return "end of statement block";
      case Type::integer:
        return "integer";
      case Type::real:
        return "float";
      case Type::string:
        return "string";
      case Type::end:
        return "end of template";
      default:
        return token.text;
    }
  }

  [[noreturn]] void fail_expected(std::string_view what) const {
    if (peek().type == Type::end) fail(fmt::format("unexpected end of template, expected '{}'.", what));
    fail(fmt::format("expected token '{}', got {}", what, quoted(describe(peek()))));
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail_expected(op);
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail_expected(name);
  }
  void expect(Type type, std::string_view what) {
    if (peek().type != type) fail_expected(what);
    next();
  }
  std::string any_name() {
    if (peek().type != Type::name) fail_expected("name");
    return next().text;
  }

  int name_id(const std::string& name) {
    const auto [place, inserted] = name_ids_.emplace(name, static_cast<int>(result_.names.size()));
    if (inserted) result_.names.push_back(name);
    return place->second;
  }

  // ---- expressions

  ExpressionPtr make(Kind kind, int line) {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = line;
    return expression;
  }

  // Puts `part` below `expression`.
  void adopt(Expression& expression, ExpressionPtr part) {
    if (part) deepen(expression, *part);
    expression.parts.push_back(std::move(part));
  }
  void deepen(Expression& expression, const Expression& part) {
    expression.depth = std::max(expression.depth, part.depth + 1);
    if (expression.depth > kMaxExpressionDepth)
      fail(
          fmt::format("an expression nested deeper than {} levels (a limit of this interpreter)", kMaxExpressionDepth));
  }

  template <class... Parts>
  ExpressionPtr make(Kind kind, int line, ExpressionPtr first, Parts... parts) {
    ExpressionPtr expression = make(kind, line);
    adopt(*expression, std::move(first));
    (adopt(*expression, std::move(parts)), ...);
    return expression;
  }

  ExpressionPtr constant(Value value, int line) {
    ExpressionPtr expression = make(Kind::constant, line);
    expression->constant = std::move(value);
    return expression;
  }

  ExpressionPtr variable(const std::string& name, int line) {
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

  ExpressionPtr expression() {
    const Nested nested(*this, expression_depth_, kMaxRecursion);
    int line = peek().line;
    const std::string unknown_before = unknown_;
    ExpressionPtr value = disjunction();
    while (at_name("if")) {
      next();
      unknown_ = unknown_before;
      const Surroundings outer = surroundings_;
      surroundings_.soft = true;
      ExpressionPtr condition = disjunction();
      ExpressionPtr otherwise = skip_name("else") ? expression() : nullptr;
      surroundings_ = outer;
      value = make(Kind::conditional, line, std::move(value), std::move(condition), std::move(otherwise));
      line = peek().line;
    }
    return value;
  }

  ExpressionPtr disjunction() {
    const int line = peek().line;
    ExpressionPtr left = conjunction();
    while (skip_name("or")) left = make(Kind::logical_or, line, std::move(left), conjunction());
    return left;
  }
  ExpressionPtr conjunction() {
    const int line = peek().line;
    ExpressionPtr left = negation();
    while (skip_name("and")) left = make(Kind::logical_and, line, std::move(left), negation());
    return left;
  }
  ExpressionPtr negation() {
    const Nested nested(*this, expression_depth_, kMaxRecursion);
    const int line = peek().line;
    if (skip_name("not")) return make(Kind::logical_not, line, negation());
    return comparison();
  }

  ExpressionPtr comparison() {
    using Comparison = Expression::Comparison;
    static const std::map<std::string_view, Comparison> kOperators = {
        {"==", Comparison::equal},      {"!=", Comparison::not_equal}, {"<", Comparison::less},
        {"<=", Comparison::less_equal}, {">", Comparison::greater},    {">=", Comparison::greater_equal}};
    const int line = peek().line;
    ExpressionPtr left = sum();
    ExpressionPtr whole;
    for (;;) {
      Comparison comparison = Comparison::in;
      if (peek().type == Type::op && kOperators.contains(peek().text)) {
        comparison = kOperators.at(next().text);
      } else if (at_name("not") && at_name("in", 1)) {
        next(), next();
        comparison = Comparison::not_in;
      } else if (!skip_name("in")) {
        return whole ? std::move(whole) : std::move(left);
      }
      if (!whole) whole = make(Kind::compare, line, std::move(left));
      whole->comparisons.push_back(comparison);
      adopt(*whole, sum());
    }
  }

  ExpressionPtr sum() {
    const int line = peek().line;
    ExpressionPtr left = concatenation();
    while (at_op("+") || at_op("-")) {
      const Kind kind = next().text == "+" ? Kind::add : Kind::subtract;
      left = make(kind, line, std::move(left), concatenation());
    }
    return left;
  }
  ExpressionPtr concatenation() {
    const int line = peek().line;
    ExpressionPtr first = product();
    if (!at_op("~")) return first;
    ExpressionPtr whole = make(Kind::concat, line, std::move(first));
    while (skip_op("~")) adopt(*whole, product());
    return whole;
  }
  ExpressionPtr product() {
    static const std::map<std::string_view, Kind> kOperators = {
        {"*", Kind::multiply}, {"/", Kind::divide}, {"//", Kind::floor_divide}, {"%", Kind::modulo}};
    const int line = peek().line;
    ExpressionPtr left = exponentiation();
    while (peek().type == Type::op && kOperators.contains(peek().text)) {
      const Kind kind = kOperators.at(next().text);
      left = make(kind, line, std::move(left), exponentiation());
    }
    return left;
  }
  ExpressionPtr exponentiation() {
    const int line = peek().line;
    ExpressionPtr left = unary(true);
    while (skip_op("**")) left = make(Kind::power, line, std::move(left), unary(true));
    return left;
  }

  ExpressionPtr unary(bool with_filter) {
    const Nested nested(*this, expression_depth_, kMaxRecursion);
    const int line = peek().line;
    ExpressionPtr value = skip_op("-")   ? make(Kind::negative, line, unary(false))
                          : skip_op("+") ? make(Kind::positive, line, unary(false))
                                         : primary();
    value = postfix(std::move(value));
    return with_filter ? filters_and_tests(std::move(value)) : std::move(value);
  }

  ExpressionPtr primary() {
    const Token& token = peek();
    const int line = token.line;
    switch (token.type) {
      case Type::name: {
        const std::string name = next().text;
        if (name == "true" || name == "True") return constant(Value(true), line);
        if (name == "false" || name == "False") return constant(Value(false), line);
        if (name == "none" || name == "None") return constant(Value(), line);
        return variable(name, line);
      }
      case Type::string: {
        std::string text;
        while (peek().type == Type::string) text += next().text;
        return constant(Value::text(nullptr, std::move(text)), line);
      }
      case Type::integer:
        return constant(Value(next().integer), line);
      case Type::real:
        return constant(Value(next().real), line);
      default:
        break;
    }
    if (skip_op("(")) {
      ExpressionPtr inside = tuple({}, true);
      expect_op(")");
      return inside;
    }
    if (skip_op("[")) {
      ExpressionPtr list = make(Kind::list, line);
      while (!at_op("]")) {
        if (!list->parts.empty()) expect_op(",");
        if (at_op("]")) break;
        adopt(*list, expression());
      }
      next();
      return list;
    }
    if (skip_op("{")) {
      ExpressionPtr dict = make(Kind::dict, line);
      while (!at_op("}")) {
        if (!dict->parts.empty()) expect_op(",");
        if (at_op("}")) break;
        adopt(*dict, expression());
        expect_op(":");
        adopt(*dict, expression());
      }
      next();
      return dict;
    }
    fail(fmt::format("unexpected {}", quoted(describe(token))));
  }

  // One expression, or several with commas between them: a tuple. `enders`: names at which it ends.
  ExpressionPtr tuple(Names enders = {}, bool parenthesized = false, bool with_conditional = true) {
    const int line = peek().line;
    ExpressionPtr whole = make(Kind::tuple, line);
    bool several = false;
    const auto ends = [&] {
      return peek().type == Type::variable_end || peek().type == Type::block_end || at_op(")") ||
             std::any_of(enders.begin(), enders.end(), [&](std::string_view name) { return at_name(name); });
    };
    for (;;) {
      if (!whole->parts.empty()) expect_op(",");
      if (ends()) break;
      adopt(*whole, with_conditional ? expression() : disjunction());
      if (!at_op(",")) break;
      several = true;
    }
    if (several) return whole;
    if (!whole->parts.empty()) return std::move(whole->parts[0]);
    if (!parenthesized) fail(fmt::format("Expected an expression, got {}", quoted(describe(peek()))));
    return whole;
  }

  ExpressionPtr postfix(ExpressionPtr value) {
    for (;;) {
      if (at_op(".") || at_op("["))
        value = subscript(std::move(value));
      else if (at_op("("))
        value = call(std::move(value));
      else
        return value;
    }
  }

  ExpressionPtr filters_and_tests(ExpressionPtr value) {
    for (;;) {
      if (at_op("|"))
        value = filters(std::move(value));
      else if (at_name("is"))
        value = test(std::move(value));
      else if (at_op("("))
        value = call(std::move(value));
      else
        return value;
    }
  }

  ExpressionPtr subscript(ExpressionPtr value) {
    const int line = peek().line;
    if (skip_op(".")) {
      if (peek().type == Type::integer) {
        ExpressionPtr index = constant(Value(peek().integer), line);
        next();
        return make(Kind::item, line, std::move(value), std::move(index));
      }
      if (peek().type != Type::name) fail("expected name or number");
      ExpressionPtr attribute = make(Kind::attribute, line, std::move(value));
      attribute->name = next().text;
      return attribute;
    }
    next();
    ExpressionPtr several = make(Kind::tuple, line);
    while (!at_op("]")) {
      if (!several->parts.empty()) expect_op(",");
      adopt(*several, subscribed());
    }
    next();
    ExpressionPtr index = several->parts.size() == 1 ? std::move(several->parts[0]) : std::move(several);
    return make(Kind::item, line, std::move(value), std::move(index));
  }

  ExpressionPtr subscribed() {
    const int line = peek().line;
    ExpressionPtr first = at_op(":") ? nullptr : expression();
    if (!skip_op(":")) return first;
    const auto part = [&] { return at_op(":") || at_op("]") || at_op(",") ? nullptr : expression(); };
    ExpressionPtr second = part();
    ExpressionPtr third = skip_op(":") ? part() : nullptr;
    return make(Kind::slice, line, std::move(first), std::move(second), std::move(third));
  }

  ExpressionPtr call(ExpressionPtr callee) {
    ExpressionPtr whole = make(Kind::call, peek().line, std::move(callee));
    arguments(*whole);
    return whole;
  }

  void arguments(Expression& whole) {
    const int line = peek().line;
    expect_op("(");
    Arguments& arguments = whole.arguments;
    const auto ensure = [&](bool ok) {
      if (!ok) fail("invalid syntax for function call expression", line);
    };
    const auto argument = [&] {
      ExpressionPtr value = expression();
      deepen(whole, *value);
      return value;
    };
    for (bool first = true; !at_op(")"); first = false) {
      if (!first) expect_op(",");
      if (at_op(")")) break;
      if (skip_op("*")) {
        ensure(!arguments.rest && !arguments.keyword_rest);
        arguments.rest = argument();
      } else if (skip_op("**")) {
        ensure(!arguments.keyword_rest);
        arguments.keyword_rest = argument();
      } else if (peek().type == Type::name && at_op("=", 1)) {
        ensure(!arguments.keyword_rest);
        std::string name = next().text;
        next();
        for (const auto& keyword : arguments.keyword)
          if (keyword.first == name) fail(fmt::format("keyword argument repeated: {}", name));
        arguments.keyword.emplace_back(std::move(name), argument());
      } else {
        ensure(!arguments.rest && !arguments.keyword_rest && arguments.keyword.empty());
        arguments.positional.push_back(argument());
      }
    }
    expect_op(")");
  }

  // Outside an if, it is an error once the statement is read: an "if" may still follow in the expression.
  void note_unknown(std::string_view what, std::string_view name, int line) {
    if (surroundings_.soft || !unknown_.empty()) return;
    unknown_ = fmt::format("No {} named {}.", what, quoted(name));
    unknown_line_ = line;
  }
  void refuse_unknown() const {
    if (!unknown_.empty()) fail(unknown_, unknown_line_);
  }

  std::string dotted_name() {
    std::string name = any_name();
    while (skip_op(".")) name += "." + any_name();
    return name;
  }

  // `value` is null for the filters of a block; `inline_first`: the first stands without "|".
  ExpressionPtr filters(ExpressionPtr value, bool inline_first = false) {
    while (at_op("|") || inline_first) {
      if (!inline_first) next();
      inline_first = false;
      const int line = peek().line;
      std::string name = dotted_name();
      if (!find_filter(name)) note_unknown("filter", name, line);
      ExpressionPtr filter = make(Kind::filter, line, std::move(value));
      filter->name = std::move(name);
      if (at_op("(")) arguments(*filter);
      value = std::move(filter);
    }
    return value;
  }

  ExpressionPtr test(ExpressionPtr value) {
    const int line = next().line;
    const bool negated = skip_name("not");
    std::string name = dotted_name();
    if (!find_test(name)) note_unknown("test", name, line);
    ExpressionPtr test = make(Kind::test, line, std::move(value));
    test->name = std::move(name);
    const Type type = peek().type;
    if (at_op("(")) {
      arguments(*test);
    } else if ((type == Type::name || type == Type::string || type == Type::integer || type == Type::real ||
                at_op("[") || at_op("{")) &&
               !at_name("else") && !at_name("or") && !at_name("and")) {
      if (at_name("is")) fail("You cannot chain multiple tests with is");
      ExpressionPtr argument = postfix(primary());
      deepen(*test, *argument);
      test->arguments.positional.push_back(std::move(argument));
    }
    return negated ? make(Kind::logical_not, line, std::move(test)) : std::move(test);
  }

  // ---- targets of assignments

  ExpressionPtr target_primary(bool with_namespace) {
    const Nested nested(*this, expression_depth_, kMaxRecursion);
    const int line = peek().line;
    if (peek().type == Type::name) {
      const std::string name = peek().text;
      if (with_namespace && at_op(".", 1)) {
        next(), next();
        ExpressionPtr attribute = make(Kind::attribute, line, variable(name, line));
        attribute->name = any_name();
        return attribute;
      }
      if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved))
        fail("can't assign to 'const'");
      next();
      ExpressionPtr target = make(Kind::name, line);
      target->name = name;
      target->name_id = name_id(name);
      return target;
    }
    if (skip_op("(")) {
      ExpressionPtr inside = target(with_namespace, {});
      expect_op(")");
      return inside;
    }
    fail(fmt::format("can't assign to {}", quoted(describe(peek()))));
  }

  ExpressionPtr target(bool with_namespace, Names enders) {
    const int line = peek().line;
    ExpressionPtr whole = make(Kind::tuple, line);
    bool several = false;
    const auto ends = [&] {
      return peek().type == Type::block_end || at_op(")") || at_op("=") ||
             std::any_of(enders.begin(), enders.end(), [&](std::string_view name) { return at_name(name); });
    };
    for (;;) {
      if (!whole->parts.empty()) expect_op(",");
      if (ends()) break;
      adopt(*whole, target_primary(with_namespace));
      if (!at_op(",")) break;
      several = true;
    }
    if (whole->parts.empty()) fail(fmt::format("Expected an expression, got {}", quoted(describe(peek()))));
    return several ? std::move(whole) : std::move(whole->parts[0]);
  }

  // ---- statements

  StatementPtr make_statement(Statement::Kind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  // Up to a tag of `enders`, whose name is then the next token; to the end of the template when there are none.
  Body statements(Names enders) {
    const Nested nested(*this, block_depth_, kMaxBlockDepth);
    Body body;
    for (;;) {
      const Token& token = peek();
      switch (token.type) {
        case Type::end:
          if (enders.size() == 0) return body;
          fail(fmt::format(
              "Unexpected end of template. It was looking for the following tags: '{}'.{}", fmt::join(enders, "' or '"),
              open_tags_.empty() ? ""
                                 : fmt::format(" The innermost block that needs to be closed is '{}' of line {}.",
                                               open_tags_.back().text, open_tags_.back().line)));
        case Type::data:
          body.push_back(make_statement(Statement::Kind::text, token.line));
          body.back()->text = next().text;
          break;
        case Type::variable_begin: {
          next();
          body.push_back(make_statement(Statement::Kind::output, token.line));
          body.back()->expression = tuple();
          expect(Type::variable_end, "end of print statement");
          refuse_unknown();
          break;
        }
        default: {
          next();
          if (peek().type == Type::name &&
              std::find(enders.begin(), enders.end(), std::string_view(peek().text)) != enders.end())
            return body;
          statement(body, enders);
          expect(Type::block_end, "end of statement block");
          refuse_unknown();
        }
      }
    }
  }

  // The body of a tag: the rest of the tag, and statements up to one of `enders`.
  Body body_until(Names enders) {
    skip_op(":");
    expect(Type::block_end, "end of statement block");
    return statements(enders);
  }

  // A body in surroundings of its own.
  Body body_until(Names enders, Surroundings surroundings) {
    const Surroundings outer = surroundings_;
    surroundings_ = surroundings;
    Body body = body_until(enders);
    surroundings_ = outer;
    return body;
  }

  void statement(Body& body, Names enders) {
    if (peek().type != Type::name) fail("tag name expected");
    const Token tag = peek();
    open_tags_.push_back(tag);
    next();
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
      fail(fmt::format("the tag '{}' reads another template, which a chat template cannot", tag.text), tag.line);
    else
      fail(fmt::format("Encountered unknown tag {}.{}", quoted(tag.text),
                       enders.size() == 0
                           ? ""
                           : fmt::format(" It was looking for the following tags: '{}'.", fmt::join(enders, "' or '"))),
           tag.line);
    open_tags_.pop_back();
  }

  StatementPtr loop(int line) {
    StatementPtr loop = make_statement(Statement::Kind::loop, line);
    loop->target = target(false, {"in"});
    refuse_loop_as_target(*loop->target);
    loop->name_id = name_id("loop");
    expect_name("in");
    loop->expression = tuple({"recursive"}, false, false);
    const Surroundings outer = surroundings_;
    surroundings_.soft = false;
    if (skip_name("if")) loop->test = expression();
    surroundings_ = outer;
    loop->recursive = skip_name("recursive");
    loop->body = body_until({"endfor", "else"}, {.in_loop = true, .soft = false});
    if (next().text == "else") {
      loop->otherwise = body_until({"endfor"}, {.in_loop = outer.in_loop && !loop->recursive, .soft = false});
      next();
    }
    return loop;
  }

  void refuse_loop_as_target(const Expression& target) const {
    if (target.kind == Kind::name && target.name == "loop")
      fail("Can't assign to special loop variable in for-loop target", target.line);
    for (const ExpressionPtr& part : target.parts) refuse_loop_as_target(*part);
  }

  StatementPtr condition(int line) {
    StatementPtr whole = make_statement(Statement::Kind::condition, line);
    const Surroundings outer = surroundings_;
    surroundings_.soft = true;
    for (;;) {
      ExpressionPtr test = tuple({}, false, false);
      whole->branches.push_back({std::move(test), body_until({"elif", "else", "endif"})});
      const std::string tag = next().text;
      if (tag == "elif") continue;
      if (tag == "else") {
        whole->otherwise = body_until({"endif"});
        next();
      }
      break;
    }
    surroundings_ = outer;
    return whole;
  }

  StatementPtr assignment(int line) {
    ExpressionPtr to = target(true, {});
    if (skip_op("=")) {
      StatementPtr assign = make_statement(Statement::Kind::assign, line);
      assign->target = std::move(to);
      assign->expression = tuple();
      return assign;
    }
    StatementPtr assign = make_statement(Statement::Kind::assign_block, line);
    assign->target = std::move(to);
    assign->expression = filters(nullptr);
    assign->body = body_until({"endset"}, {.in_loop = surroundings_.in_loop, .soft = false});
    next();
    return assign;
  }

  void signature(Statement& statement) {
    expect_op("(");
    while (!at_op(")")) {
      if (!statement.parameters.empty()) expect_op(",");
      const std::string name = any_name();
      for (const Parameter& parameter : statement.parameters)
        if (parameter.name == name) fail(fmt::format("duplicate argument {} in function definition", quoted(name)));
      ExpressionPtr fallback;
      if (skip_op("="))
        fallback = expression();
      else if (!statement.parameters.empty() && statement.parameters.back().fallback)
        fail("non-default argument follows default argument");
      statement.parameters.push_back({name, name_id(name), std::move(fallback)});
    }
    next();
  }

  void macro_body(Statement& statement, Names enders) {
    macros_.push_back(&statement.extras);
    statement.body = body_until(enders, {});
    macros_.pop_back();
    next();
    for (const Parameter& parameter : statement.parameters) {
      if (parameter.name == "caller") {
        if (statement.extras.caller && !parameter.fallback)
          fail(
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
    macro->name = any_name();
    macro->name_id = name_id(macro->name);
    signature(*macro);
    macro_body(*macro, {"endmacro"});
    return macro;
  }

  StatementPtr call_block(int line) {
    StatementPtr block = make_statement(Statement::Kind::call, line);
    if (at_op("(")) signature(*block);
    block->expression = expression();
    if (block->expression->kind != Kind::call) fail("expected call", line);
    macro_body(*block, {"endcall"});
    return block;
  }

  StatementPtr generation(int line) {
    StatementPtr block = make_statement(Statement::Kind::generation, line);
    block->body = body_until({"endgeneration"}, {});
    next();
    return block;
  }

  StatementPtr filter_block(int line) {
    StatementPtr block = make_statement(Statement::Kind::filter, line);
    block->expression = filters(nullptr, true);
    block->body = body_until({"endfilter"}, {.in_loop = surroundings_.in_loop, .soft = false});
    next();
    return block;
  }

  StatementPtr with(int line) {
    StatementPtr block = make_statement(Statement::Kind::with, line);
    while (peek().type != Type::block_end) {
      if (!block->assignments.empty()) expect_op(",");
      ExpressionPtr to = target(false, {});
      expect_op("=");
      block->assignments.emplace_back(std::move(to), expression());
    }
    block->body = body_until({"endwith"}, {.in_loop = surroundings_.in_loop, .soft = false});
    next();
    return block;
  }

  StatementPtr block(int line) {
    StatementPtr block = make_statement(Statement::Kind::block, line);
    block->name = any_name();
    block->recursive = skip_name("scoped");
    if (at_name("required")) fail("required blocks are not supported");
    block->body = body_until({"endblock"}, {});
    next();
    skip_name(block->name);
    return block;
  }

  // Autoescape is off already; a template that turns it on would need it everywhere.
  StatementPtr autoescape(int line) {
    const ExpressionPtr on = expression();
    if (on->kind != Kind::constant || truth(on->constant)) fail("autoescape is not supported", line);
    StatementPtr block = make_statement(Statement::Kind::with, line);
    block->body = body_until({"endautoescape"}, {.in_loop = surroundings_.in_loop, .soft = false});
    next();
    return block;
  }

  void print(Body& body, int line) {
    bool first = true;
    while (peek().type != Type::block_end) {
      if (!first) expect_op(",");
      first = false;
      body.push_back(make_statement(Statement::Kind::output, line));
      body.back()->expression = expression();
    }
  }

  StatementPtr jump(const Token& tag) {
    if (!surroundings_.in_loop) fail(fmt::format("'{}' outside loop", tag.text), tag.line);
    return make_statement(tag.text == "break" ? Statement::Kind::stop : Statement::Kind::next, tag.line);
  }

  std::string_view where_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Template result_;
  std::map<std::string, int> name_ids_;
  Surroundings surroundings_;
  std::vector<MacroExtras*> macros_;  // the macros around
  std::vector<Token> open_tags_;
  std::string unknown_;  // the message about a filter or test that does not exist
  int unknown_line_ = 0;
  int expression_depth_ = 0, block_depth_ = 0;
};

}  // namespace

Template parse_template(std::string_view source, std::string_view where) {
  return Parser(source, where).run();
}

}  // namespace heddle::jinja
