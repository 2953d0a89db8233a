// Executes a parsed template.
#pragma once

#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template/arguments.h"
#include "text/chat_template/ast.h"
#include "text/chat_template/meter.h"
#include "text/chat_template/value.h"

namespace heddle::jinja {

// The names of one scope; other names are looked up in the parent.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> variables;  // by name_id
};

struct Macro : Object {
  Macro(Meter* meter, const Statement* statement, std::shared_ptr<Scope> around)
      : Object(meter, 128), definition(statement), scope(std::move(around)) {}
  const Statement* definition;
  std::shared_ptr<Scope> scope;  // where it was defined
};

class Interpreter;

// The variable `loop`. Elements are tested on demand, since the loop's body may change what the test sees.
struct Loop : Object {
  Loop(Interpreter& in, const Statement* definition, std::shared_ptr<Scope> around, const Value& iterable, int nesting);

  bool advance();                      // to the next element
  const std::optional<Value>& peek();  // the element after the current one
  std::int64_t total();

  Interpreter& interpreter;
  const Statement* statement;
  std::shared_ptr<Scope> scope;  // around the loop
  std::vector<Value> items;
  std::size_t next = 0;
  std::optional<Value> peeked, current, previous, last_changed;
  std::optional<std::int64_t> length;
  std::int64_t index0 = -1;
  int depth0;

 private:
  std::optional<Value> pull();
  bool tested = false;  // the test has been applied to the rest of `items`
};

// "<LoopContext 1/3>"
std::string loop_text(Meter& meter, const Value& loop);
std::string macro_name(const Value& macro);

class Interpreter {
 public:
  // The variables by name. They, the template and their meter must outlive the interpreter.
  Interpreter(Meter& meter, const Template& parsed, const std::map<std::string, Value, std::less<>>& variables,
              const std::tm& local_time);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  // Throws TemplateError; line() is then its position.
  std::string run();
  int line() const { return line_; }

  Meter& meter() { return meter_; }
  const std::tm& local_time() const { return local_time_; }
  Value text(std::string text) { return Value::text(&meter_, std::move(text)); }

  Value call(const Value& callee, CallArguments arguments);
  Value attribute(const Value& value, std::string_view name);  // value.name
  Value subscript(const Value& value, const Value& index);     // value[index]
  Value apply_filter(std::string_view name, const Value& value, CallArguments arguments);
  bool apply_test(std::string_view name, const Value& value, CallArguments arguments);
  Value make_namespace(CallArguments& arguments);
  // Keeps an object that may contain itself, to break the cycle at the end.
  void keep(const std::shared_ptr<Object>& object);

  Value evaluate(const Expression& expression);
  Value evaluate_in(const std::shared_ptr<Scope>& scope, const Expression& expression);
  void assign(const std::shared_ptr<Scope>& scope, const Expression& target, const Value& value);

 private:
  enum class Flow { normal, stop, next };
  class Buffer;

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_condition(const Statement& statement);
  Flow execute_loop(const Statement& statement);
  Flow execute_assign_block(const Statement& statement);
  Flow execute_filter(const Statement& statement);
  Flow execute_with(const Statement& statement);
  void execute_macro(const Statement& statement);
  void execute_call(const Statement& statement);
  void execute_generation(const Statement& statement);
  void execute_block(const Statement& statement);
  Flow run_loop(const Statement& statement, const std::shared_ptr<Scope>& outer, const Value& iterable, int depth0);
  std::string render_recursive(const Loop& loop, const Value& iterable);
  void emit(std::string_view text);

  Value evaluate_kind(const Expression& expression);
  Value evaluate_item(const Expression& expression);
  Value evaluate_call(const Expression& expression);
  Value evaluate_filter(const Expression& expression, const Value* piped);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_arithmetic(const Expression& expression);
  Value evaluate_logical(const Expression& expression);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions);
  CallArguments evaluate(const Arguments& arguments);

  Value lookup(const Expression& name);
  void set(Scope& scope, int name_id, Value value);
  Value call_macro(const Macro& macro, CallArguments arguments);
  Value call_loop(Loop& loop, CallArguments arguments);
  Value call_caller(const Expression& call, const Value& caller);

  Meter& meter_;
  const Template& template_;
  const std::map<std::string, Value, std::less<>>& variables_;
  std::tm local_time_;
  std::shared_ptr<Scope> root_, scope_;
  std::string* out_ = nullptr;
  std::size_t buffered_bytes_ = 0;
  int line_ = 1;
  std::vector<std::shared_ptr<Scope>> captured_;  // scopes of macros, which may contain the macro itself
  std::vector<std::shared_ptr<Object>> kept_;
};

}  // namespace heddle::jinja
