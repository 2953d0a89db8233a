// Parses expressions and assignment targets as jinja2 does.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/ast.h"
#include "text/chat_template/token_reader.h"

namespace heddle::jinja {

class ExpressionParser {
 public:
  using Names = std::initializer_list<std::string_view>;

  // State inside one macro, loop or block; restored at its end.
  struct Surroundings {
    bool in_loop = false;  // break and continue are allowed
    bool soft = false;     // inside an if: an unknown filter is an error only when it runs
  };

  explicit ExpressionParser(TokenReader& reader) : reader_(reader) {}

  ExpressionPtr expression();

  // One expression, or several separated by commas: a tuple.
  struct TupleRules {
    Names enders = {};  // names that end it
    bool may_be_empty = false;
    bool conditional = true;  // "a if b" is allowed
  };
  ExpressionPtr tuple(const TupleRules& rules);

  // The target of an assignment: a name, or several.
  struct TargetRules {
    Names enders = {};
    bool attributes = false;  // also attributes of namespaces
  };
  ExpressionPtr target(const TargetRules& rules);

  // "|a|b" after `value`, which is null for the text of a block.
  ExpressionPtr filters(ExpressionPtr value);
  // "a|b" of the tag `filter`.
  ExpressionPtr block_filters();

  // Throws if an unknown filter or test was read where it would certainly run. Call it after a whole statement, since
  // an "if" may still follow in an expression.
  void refuse_unknown() const;

  int name_id(const std::string& name);
  std::vector<std::string> take_names() { return std::move(names_); }

  Surroundings& surroundings() { return surroundings_; }
  // The enclosing macros, which record what their bodies use.
  std::vector<MacroExtras*>& macros() { return macros_; }

 private:
  using Kind = Expression::Kind;
  using Operator = Expression::Operator;
  using Operand = ExpressionPtr (ExpressionParser::*)();

  ExpressionPtr make(Kind kind, int line);
  template <class... Parts>
  ExpressionPtr make(Kind kind, int line, ExpressionPtr first, Parts... parts) {
    ExpressionPtr expression = make(kind, line);
    adopt(*expression, std::move(first));
    (adopt(*expression, std::move(parts)), ...);
    return expression;
  }
  void adopt(Expression& expression, ExpressionPtr part);  // makes `part` a child
  void deepen(Expression& expression, const Expression& part);
  ExpressionPtr constant(Value value, int line);
  ExpressionPtr variable(const std::string& name, int line);

  // Operands with operators between them, flat, whatever their number. skip() takes an operator if there is one.
  template <class SkipOperator>
  ExpressionPtr chain(Kind kind, Operand operand, SkipOperator skip);
  std::optional<Operator> skip_operator(std::initializer_list<std::pair<std::string_view, Operator>> operators);

  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr exponentiation();
  ExpressionPtr filtered_unary();
  ExpressionPtr unary();
  ExpressionPtr primary();
  ExpressionPtr list();
  ExpressionPtr dict();

  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr filters_and_tests(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr subscribed();
  ExpressionPtr call(ExpressionPtr callee);
  void arguments(Expression& whole);
  ExpressionPtr filter(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  std::string dotted_name();
  ExpressionPtr target_primary(bool attributes);

  bool ends_at(Names names) const;
  void note_unknown(std::string message, int line);

  TokenReader& reader_;
  std::map<std::string, int> name_ids_;
  std::vector<std::string> names_;  // by id
  Surroundings surroundings_;
  std::vector<MacroExtras*> macros_;
  std::string unknown_;  // the message about an unknown filter or test
  int unknown_line_ = 0;
  int recursion_ = 0;
};

}  // namespace heddle::jinja
