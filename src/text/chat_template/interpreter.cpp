#include "text/chat_template/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/chat_template/filters.h"
#include "text/chat_template/methods.h"
#include "text/chat_template/python.h"
#include "text/chat_template/tests.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

// Restores a variable at the end of its life.
template <class T>
class Restore {
 public:
  Restore(T& variable, T value) : variable_(variable), old_(std::exchange(variable, std::move(value))) {}
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;
  ~Restore() { variable_ = std::move(old_); }

 private:
  T& variable_;
  T old_;
};

std::shared_ptr<Scope> inside(const std::shared_ptr<Scope>& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

}  // namespace

// Redirects output into its own string during its life.
class Interpreter::Buffer {
 public:
  explicit Buffer(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.out_, &text_)) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    interpreter_.out_ = outer_;
    interpreter_.buffered_bytes_ -= counted();
  }

  std::string take() {
    taken_ = text_.size();
    return std::move(text_);
  }

 private:
  std::size_t counted() const { return taken_.value_or(text_.size()); }

  Interpreter& interpreter_;
  std::string text_;
  std::optional<std::size_t> taken_;
  std::string* outer_;
};

Interpreter::Interpreter(Meter& meter, const Template& parsed,
                         const std::map<std::string, Value, std::less<>>& variables, const std::tm& local_time)
    : meter_(meter),
      template_(parsed),
      variables_(variables),
      local_time_(local_time),
      root_(std::make_shared<Scope>()),
      scope_(root_) {}

Interpreter::~Interpreter() {
  for (const auto& object : kept_) {
    if (auto* space = dynamic_cast<Namespace*>(object.get())) space->attributes.clear();
    if (auto* loop = dynamic_cast<Loop*>(object.get())) loop->last_changed.reset();
  }
  for (const auto& scope : captured_) scope->variables.clear();
  root_->variables.clear();
}

std::string Interpreter::run() {
  Buffer buffer(*this);
  execute(template_.body);
  return buffer.take();
}

void Interpreter::keep(const std::shared_ptr<Object>& object) {
  if (!kept_.empty() && kept_.back() == object) return;
  meter_.keep(sizeof(object));
  kept_.push_back(object);
}

void Interpreter::emit(std::string_view text) {
  meter_.step_bytes(text.size());
  buffered_bytes_ += text.size();
  if (buffered_bytes_ > meter_.limits().max_output_bytes) {
    buffered_bytes_ -= text.size();
    throw TemplateError(
        fmt::format("the template writes more than max_output_bytes = {} bytes", meter_.limits().max_output_bytes));
  }
  *out_ += text;
}

// ---- statements

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const StatementPtr& statement : body)
    if (const Flow flow = execute(*statement); flow != Flow::normal) return flow;
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  using Tag = Statement::Kind;
  const Level level(meter_);
  meter_.step();
  line_ = statement.line;
  switch (statement.kind) {
    case Tag::text:
      emit(statement.text);
      return Flow::normal;
    case Tag::output: {
      const Value value = evaluate(*statement.expression);
      if (value.is_string())
        emit(value.string());
      else
        emit(to_text(meter_, value));
      return Flow::normal;
    }
    case Tag::condition:
      return execute_condition(statement);
    case Tag::loop:
      return execute_loop(statement);
    case Tag::assign:
      assign(scope_, *statement.target, evaluate(*statement.expression));
      return Flow::normal;
    case Tag::assign_block:
      return execute_assign_block(statement);
    case Tag::macro:
      execute_macro(statement);
      return Flow::normal;
    case Tag::call:
      execute_call(statement);
      return Flow::normal;
    case Tag::generation:
      execute_generation(statement);
      return Flow::normal;
    case Tag::filter:
      return execute_filter(statement);
    case Tag::with:
      return execute_with(statement);
    case Tag::block:
      execute_block(statement);
      return Flow::normal;
    case Tag::stop:
      return Flow::stop;
    case Tag::next:
      return Flow::next;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_condition(const Statement& statement) {
  for (const Branch& branch : statement.branches)
    if (truth(evaluate(*branch.condition))) return execute(branch.body);
  return execute(statement.otherwise);
}

Interpreter::Flow Interpreter::execute_loop(const Statement& statement) {
  const Value iterable = evaluate(*statement.expression);
  if (!statement.recursive) return run_loop(statement, scope_, iterable, 0);
  std::string text;
  {
    Buffer buffer(*this);
    run_loop(statement, scope_, iterable, 0);
    text = buffer.take();
  }
  emit(text);
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement, const std::shared_ptr<Scope>& outer,
                                        const Value& iterable, int depth0) {
  const auto loop = std::make_shared<Loop>(*this, &statement, outer, iterable, depth0);
  const Value loop_value(Kind::loop, loop);
  bool finished_one = false;  // as in jinja2, an element left by break or continue does not count
  const Restore scope(scope_, inside(outer));
  while (loop->advance()) {
    meter_.step();
    if (scope_.use_count() > 1)
      scope_ = inside(outer);
    else
      scope_->variables.clear();
    set(*scope_, statement.name_id, loop_value);
    assign(scope_, *statement.target, *loop->current);
    const Flow flow = execute(statement.body);
    if (flow == Flow::stop) break;
    if (flow == Flow::normal) finished_one = true;
  }
  if (finished_one || statement.otherwise.empty()) return Flow::normal;
  scope_ = inside(outer);
  return execute(statement.otherwise);
}

std::string Interpreter::render_recursive(const Loop& loop, const Value& iterable) {
  const Level level(meter_);
  const std::shared_ptr<Scope> outer = loop.scope;
  Buffer buffer(*this);
  run_loop(*loop.statement, outer, iterable, loop.depth0 + 1);
  return buffer.take();
}

Interpreter::Flow Interpreter::execute_assign_block(const Statement& statement) {
  Flow flow = Flow::normal;
  Value value;
  {
    Buffer buffer(*this);
    const Restore scope(scope_, inside(scope_));
    flow = execute(statement.body);
    value = text(buffer.take());
  }
  if (flow != Flow::normal) return flow;
  if (statement.expression) value = evaluate_filter(*statement.expression, &value);
  assign(scope_, *statement.target, value);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_filter(const Statement& statement) {
  Flow flow = Flow::normal;
  Value value;
  {
    Buffer buffer(*this);
    const Restore scope(scope_, inside(scope_));
    flow = execute(statement.body);
    value = text(buffer.take());
    if (flow == Flow::normal) value = evaluate_filter(*statement.expression, &value);
  }
  if (flow == Flow::normal) emit(to_text(meter_, value));
  return flow;
}

Interpreter::Flow Interpreter::execute_with(const Statement& statement) {
  std::shared_ptr<Scope> scope = inside(scope_);
  for (const auto& [target, value] : statement.assignments) assign(scope, *target, evaluate(*value));
  const Restore restore(scope_, std::move(scope));
  return execute(statement.body);
}

void Interpreter::execute_macro(const Statement& statement) {
  meter_.keep(sizeof(scope_));
  if (captured_.empty() || captured_.back() != scope_) captured_.push_back(scope_);
  set(*scope_, statement.name_id, Value(Kind::macro, std::make_shared<Macro>(&meter_, &statement, scope_)));
}

void Interpreter::execute_call(const Statement& statement) {
  const Value caller(Kind::macro, std::make_shared<Macro>(&meter_, &statement, scope_));
  const Value result = call_caller(*statement.expression, caller);
  emit(to_text(meter_, result));
}

void Interpreter::execute_generation(const Statement& statement) {
  const Restore scope(scope_, inside(scope_));
  execute(statement.body);
}

// A block sees the template's own variables; a scoped block also sees those of enclosing scopes.
void Interpreter::execute_block(const Statement& statement) {
  const Restore scope(scope_, inside(statement.recursive ? scope_ : root_));
  execute(statement.body);
}

// ---- names

void Interpreter::set(Scope& scope, int name_id, Value value) {
  for (auto& [id, old] : scope.variables) {
    if (id != name_id) continue;
    old = std::move(value);
    return;
  }
  meter_.step(1 + scope.variables.size() / 8);
  scope.variables.emplace_back(name_id, std::move(value));
}

Value Interpreter::lookup(const Expression& name) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    meter_.step(scope->variables.size() / 8);
    for (const auto& [id, value] : scope->variables)
      if (id == name.name_id) return value;
  }
  if (const auto found = variables_.find(name.name); found != variables_.end()) return found->second;
  if (name.name == "self" || name.name == "lipsum")  // jinja2 always defines them
    throw TemplateError(fmt::format("jinja2's variable {} is not supported", in_quotes(name.name)));
  if (is_function(name.name)) return {Kind::function, std::make_shared<Function>(&meter_, name.name)};
  return Value::undefined(meter_, fmt::format("{} is undefined", in_quotes(name.name)));
}

void Interpreter::assign(const std::shared_ptr<Scope>& scope, const Expression& target, const Value& value) {
  switch (target.kind) {
    case Expression::Kind::name:
      return set(*scope, target.name_id, value);
    case Expression::Kind::attribute: {
      const Value space = evaluate_in(scope, *target.parts[0]);
      if (!space.is(Kind::name_space)) throw TemplateError("cannot assign attribute on non-namespace object");
      auto& attributes = space.object<Namespace>().attributes;
      meter_.step(attributes.size() / 8);
      for (auto& [name, old] : attributes) {
        if (name != target.name) continue;
        old = value;
        return;
      }
      attributes.emplace_back(target.name, value);
      return;
    }
    default: {
      const std::vector<Value> items = iterate(meter_, value);
      if (items.size() < target.parts.size())
        throw TemplateError(
            fmt::format("not enough values to unpack (expected {}, got {})", target.parts.size(), items.size()));
      if (items.size() > target.parts.size())
        throw TemplateError(fmt::format("too many values to unpack (expected {})", target.parts.size()));
      for (std::size_t i = 0; i < items.size(); ++i) assign(scope, *target.parts[i], items[i]);
    }
  }
}

Value Interpreter::make_namespace(CallArguments& arguments) {
  const auto space = std::make_shared<Namespace>(&meter_);
  if (arguments.positional.size() > 1)
    throw TemplateError(fmt::format("dict expected at most 1 argument, got {}", arguments.positional.size()));
  const Value made = call_function(*this, "dict", std::move(arguments));
  for (const auto& [key, value] : made.dict().members) {
    meter_.keep(sizeof(key) + 64);
    space->attributes.emplace_back(to_text(meter_, key), value);
  }
  keep(space);
  return {Kind::name_space, space};
}

// ---- attributes

namespace {

std::string object_repr(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
      return "None";
    case Kind::name_space:
      return "jinja2.utils.Namespace object";
    case Kind::loop:
      return "jinja2.runtime.LoopContext object";
    case Kind::macro:
      return "jinja2.runtime.Macro object";
    default:
      return fmt::format("{} object", type_name(value));
  }
}

}  // namespace

Value Interpreter::attribute(const Value& value, std::string_view name) {
  require_defined(value);
  if (std::optional<Value> found = find_attribute(*this, value, name)) return *std::move(found);
  if (value.is(Kind::dict))
    if (const Value* found = value.dict().find(name)) return *found;
  return Value::undefined(meter_,
                          fmt::format("{} has no attribute {}", in_quotes(object_repr(value)), in_quotes(name)));
}

Value Interpreter::subscript(const Value& value, const Value& index) {
  if (std::optional<Value> found = item(meter_, value, index)) return *std::move(found);
  if (index.is_string()) {
    if (std::optional<Value> found = find_attribute(*this, value, index.string())) return *std::move(found);
    return Value::undefined(
        meter_, fmt::format("{} has no attribute {}", in_quotes(object_repr(value)), in_quotes(index.string())));
  }
  return Value::undefined(meter_, fmt::format("{} has no element {}", object_repr(value), to_repr(meter_, index)));
}

// ---- calls

Value Interpreter::call(const Value& callee, CallArguments arguments) {
  const Level level(meter_);
  switch (callee.kind()) {
    case Kind::macro:
      return call_macro(callee.object<Macro>(), std::move(arguments));
    case Kind::loop:
      return call_loop(callee.object<Loop>(), std::move(arguments));
    case Kind::method:
      if (callee.object<Method>().self.is(Kind::loop) && callee.object<Method>().name == "changed")
        keep(callee.object<Method>().self.shared());
      return call_method(*this, callee.object<Method>().self, callee.object<Method>().name, std::move(arguments));
    case Kind::function:
      return call_function(*this, callee.object<Function>().name, std::move(arguments));
    case Kind::joiner: {
      Joiner& joiner = callee.object<Joiner>();
      return std::exchange(joiner.used, true) ? joiner.separator : text("");
    }
    default:
      require_defined(callee);
      throw TemplateError(fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

Value Interpreter::call_macro(const Macro& macro, CallArguments arguments) {
  const Statement& definition = *macro.definition;
  const std::string name = definition.kind == Statement::Kind::macro ? in_quotes(definition.name) : "None";
  const std::shared_ptr<Scope> scope = inside(macro.scope);
  const std::size_t num_parameters = definition.parameters.size();
  std::vector<std::optional<Value>> given(num_parameters);
  bool explicit_caller = false;
  for (std::size_t i = 0; i < num_parameters; ++i) {
    const std::string& parameter = definition.parameters[i].name;
    given[i] = i < arguments.positional.size() ? std::optional(arguments.positional[i]) : arguments.take(parameter);
    explicit_caller = explicit_caller || parameter == "caller";
  }
  const auto put = [&](std::string_view extra, Value value) {
    const auto found = std::find(template_.names.begin(), template_.names.end(), extra);
    set(*scope, static_cast<int>(found - template_.names.begin()), std::move(value));
  };
  if (definition.extras.caller && !explicit_caller) {
    std::optional<Value> caller = arguments.take("caller");
    if (!caller || caller->is_none()) caller = Value::undefined(meter_, "No caller defined");
    put("caller", *caller);
  }
  if (definition.extras.kwargs) {
    Dict::Members members;
    for (auto& [key, value] : arguments.keyword) members.emplace_back(text(key), std::move(value));
    put("kwargs", Dict::make(meter_, std::move(members)));
  } else if (!arguments.keyword.empty()) {
    throw TemplateError(
        fmt::format("macro {} takes no keyword argument {}", name, in_quotes(arguments.keyword.front().first)));
  }
  if (definition.extras.varargs) {
    const auto first = arguments.positional.begin() +
                       static_cast<std::ptrdiff_t>(std::min(num_parameters, arguments.positional.size()));
    put("varargs", Value::tuple(meter_, {first, arguments.positional.end()}));
  } else if (arguments.positional.size() > num_parameters) {
    throw TemplateError(fmt::format("macro {} takes not more than {} argument(s)", name, num_parameters));
  }
  Buffer buffer(*this);
  const Restore restore(scope_, scope);
  for (std::size_t i = 0; i < num_parameters; ++i) {
    const Parameter& parameter = definition.parameters[i];
    set(*scope, parameter.name_id,
        given[i] ? *given[i]
        : parameter.fallback
            ? evaluate(*parameter.fallback)
            : Value::undefined(meter_, fmt::format("parameter {} was not provided", in_quotes(parameter.name))));
  }
  execute(definition.body);
  return text(buffer.take());
}

Value Interpreter::call_loop(Loop& loop, CallArguments arguments) {
  const Bound bound("loop", std::move(arguments), {"iterable"}, 1);
  if (!loop.statement->recursive)
    throw TemplateError("The loop must have the 'recursive' marker to be called recursively.");
  return text(render_recursive(loop, bound.get(0)));
}

Value Interpreter::call_caller(const Expression& expression, const Value& caller) {
  const Value callee = evaluate(*expression.parts[0]);
  CallArguments arguments = evaluate(expression.arguments);
  arguments.keyword.emplace_back("caller", caller);
  line_ = expression.line;
  return call(callee, std::move(arguments));
}

Value Interpreter::apply_filter(std::string_view name, const Value& value, CallArguments arguments) {
  const Filter filter = find_filter(name);
  if (!filter) throw TemplateError(unknown_filter(name));
  const Level level(meter_);
  meter_.step();
  return filter(*this, value, std::move(arguments));
}

bool Interpreter::apply_test(std::string_view name, const Value& value, CallArguments arguments) {
  const Test test = find_test(name);
  if (!test) throw TemplateError(fmt::format("No test named {}.", in_quotes(name)));
  const Level level(meter_);
  meter_.step();
  return test(*this, value, std::move(arguments));
}

// ---- loops

Loop::Loop(Interpreter& in, const Statement* definition, std::shared_ptr<Scope> around, const Value& iterable,
           int nesting)
    : Object(&in.meter(), 256),
      interpreter(in),
      statement(definition),
      scope(std::move(around)),
      items(iterate(in.meter(), iterable)),
      depth0(nesting) {}

std::optional<Value> Loop::pull() {
  while (next < items.size()) {
    Value item = items[next++];
    if (!statement->test || tested) return item;
    const std::shared_ptr<Scope> inner = inside(scope);
    interpreter.assign(inner, *statement->target, item);
    if (truth(interpreter.evaluate_in(inner, *statement->test))) return item;
  }
  return std::nullopt;
}

const std::optional<Value>& Loop::peek() {
  if (!peeked) peeked = pull();
  return peeked;
}

bool Loop::advance() {
  std::optional<Value> item = peeked ? std::exchange(peeked, std::nullopt) : pull();
  if (!item) return false;
  ++index0;
  previous = std::move(current);
  current = std::move(item);
  return true;
}

std::int64_t Loop::total() {
  if (length) return *length;
  if (!statement->test) return *(length = static_cast<std::int64_t>(items.size()));
  std::vector<Value> rest;
  while (std::optional<Value> item = pull()) rest.push_back(*std::move(item));
  items = std::move(rest);
  next = 0;
  tested = true;
  return *(length = static_cast<std::int64_t>(items.size()) + index0 + 1 + (peeked ? 1 : 0));
}

std::string loop_text(Meter&, const Value& value) {
  Loop& loop = value.object<Loop>();
  return fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.total());
}

std::string macro_name(const Value& macro) {
  const Statement& definition = *macro.object<Macro>().definition;
  return definition.kind == Statement::Kind::macro ? in_quotes(definition.name) : "anonymous";
}

}  // namespace heddle::jinja
