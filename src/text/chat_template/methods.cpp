#include "text/chat_template/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "text/chat_template/interpreter.h"
#include "text/chat_template/python.h"
#include "text/chat_template/string_methods.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

using Names = std::set<std::string_view>;

Value method(Interpreter& in, const Value& self, std::string_view name) {
  return {Kind::method, std::make_shared<Method>(&in.meter(), self, std::string(name))};
}

Value forbidden(Interpreter& in, const Value& self, std::string_view name) {
  return Value::undefined(in.meter(), fmt::format("access to attribute {} of {} object is unsafe.", in_quotes(name),
                                                  in_quotes(type_name(self))));
}

std::optional<Value> one_of(Interpreter& in, const Value& self, std::string_view name, const Names& allowed,
                            const Names& unsafe = {}) {
  if (allowed.contains(name)) return method(in, self, name);
  if (unsafe.contains(name)) return forbidden(in, self, name);
  return std::nullopt;
}

std::optional<Value> loop_attribute(Interpreter& in, const Value& value, std::string_view name) {
  Loop& loop = value.object<Loop>();
  if (name == "index") return Value(loop.index0 + 1);
  if (name == "index0") return Value(loop.index0);
  if (name == "first") return Value(loop.index0 == 0);
  if (name == "last") return Value(!loop.peek());
  if (name == "length") return Value(loop.total());
  if (name == "revindex") return Value(loop.total() - loop.index0);
  if (name == "revindex0") return Value(loop.total() - loop.index0 - 1);
  if (name == "depth") return Value(std::int64_t{loop.depth0 + 1});
  if (name == "depth0") return Value(std::int64_t{loop.depth0});
  if (name == "previtem")
    return loop.previous ? *loop.previous : Value::undefined(in.meter(), "there is no previous item");
  if (name == "nextitem") {
    const std::optional<Value>& next = loop.peek();
    return next ? *next : Value::undefined(in.meter(), "there is no next item");
  }
  return one_of(in, value, name, {"cycle", "changed"});
}

Value call_loop_method(Interpreter& in, Loop& loop, std::string_view name, CallArguments arguments) {
  if (!arguments.keyword.empty()) throw TemplateError(fmt::format("{}() takes no keyword arguments", name));
  if (name == "cycle") {
    if (arguments.positional.empty()) throw TemplateError("no items for cycling given");
    return arguments.positional[static_cast<std::size_t>(loop.index0) % arguments.positional.size()];
  }
  const Value now = Value::tuple(in.meter(), std::move(arguments.positional));
  if (loop.last_changed && equal(in.meter(), *loop.last_changed, now)) return Value(false);
  loop.last_changed = now;
  return Value(true);
}

Value call_cycler_method(Interpreter&, Cycler& cycler, std::string_view name, CallArguments arguments) {
  const Bound bound(name, std::move(arguments), {});
  if (name == "reset") {
    cycler.position = 0;
    return {};
  }
  Value current = cycler.items.items()[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.items().size();
  return current;
}

Value call_dict_method(Interpreter& in, const Value& self, std::string_view name, CallArguments arguments) {
  if (name == "get") {
    const Bound bound("get", std::move(arguments), {"key", "default"}, 1);
    const Value* found = self.dict().find(bound.get(0));
    return found ? *found : bound.get(1);
  }
  const Bound bound(name, std::move(arguments), {});
  if (name == "copy") return self;
  const View::Part part = name == "keys" ? View::Part::keys : name == "values" ? View::Part::values : View::Part::items;
  return {Kind::view, std::make_shared<View>(&in.meter(), self, part)};
}

Value call_sequence_method(Interpreter& in, const Value& self, std::string_view name, CallArguments arguments) {
  if (name == "copy") {
    const Bound bound(name, std::move(arguments), {});
    return self;
  }
  const std::vector<Value> items = iterate(in.meter(), self);
  if (name == "count") {
    const Bound bound(name, std::move(arguments), {"value"}, 1);
    const Value wanted = bound.get(0);
    return Value(static_cast<std::int64_t>(
        std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(in.meter(), item, wanted); })));
  }
  const Bound bound(name, std::move(arguments), {"value", "start", "stop"}, 1);
  const Value wanted = bound.get(0);
  const auto size = static_cast<std::int64_t>(items.size());
  const auto place = [&](std::size_t parameter, std::int64_t absent) {
    if (!bound.has(parameter)) return absent;
    const std::int64_t at = as_index(bound.get(parameter));
    return std::clamp<std::int64_t>(at < 0 ? std::max<std::int64_t>(at, -size) + size : at, 0, size);
  };
  for (std::int64_t at = place(1, 0); at < place(2, size); ++at)
    if (equal(in.meter(), items[static_cast<std::size_t>(at)], wanted)) return Value(at);
  throw TemplateError(fmt::format("{} is not in {}", to_repr(in.meter(), wanted), type_name(self)));
}

// ---- functions

Value function_range(Interpreter& in, CallArguments arguments) {
  if (arguments.positional.empty() || arguments.positional.size() > 3 || !arguments.keyword.empty())
    throw TemplateError("range expected 1 to 3 positional arguments");
  std::vector<std::int64_t> numbers;
  for (const Value& value : arguments.positional) numbers.push_back(as_index(value));
  if (numbers.size() == 1) numbers.insert(numbers.begin(), 0);
  if (numbers.size() == 2) numbers.push_back(1);
  if (numbers[2] == 0) throw TemplateError("range() arg 3 must not be zero");
  return {Kind::range, std::make_shared<Range>(&in.meter(), numbers[0], numbers[1], numbers[2])};
}

Value function_dict(Interpreter& in, CallArguments arguments) {
  Dict::Members members;
  if (arguments.positional.size() > 1)
    throw TemplateError(fmt::format("dict expected at most 1 argument, got {}", arguments.positional.size()));
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is(Kind::dict)) {
      members = from.dict().members;
    } else {
      for (const Value& pair : iterate(in.meter(), from)) {
        std::vector<Value> parts = iterate(in.meter(), pair);
        if (parts.size() != 2) throw TemplateError("dictionary update sequence element has a length that is not 2");
        members.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.keyword) members.emplace_back(in.text(name), std::move(value));
  return Dict::make(in.meter(), std::move(members));
}

Value function_namespace(Interpreter& in, CallArguments arguments) {
  return in.make_namespace(arguments);
}

Value function_cycler(Interpreter& in, CallArguments arguments) {
  if (!arguments.keyword.empty()) throw TemplateError("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) throw TemplateError("at least one item has to be provided");
  return {Kind::cycler,
          std::make_shared<Cycler>(&in.meter(), Value::tuple(in.meter(), std::move(arguments.positional)))};
}

Value function_joiner(Interpreter& in, CallArguments arguments) {
  const Bound bound("joiner", std::move(arguments), {"sep"});
  return {Kind::joiner, std::make_shared<Joiner>(&in.meter(), bound.get(0, in.text(", ")))};
}

Value function_raise(Interpreter& in, CallArguments arguments) {
  const Bound bound("raise_exception", std::move(arguments), {"message"}, 1);
  throw TemplateError(to_text(in.meter(), bound.get(0)));
}

Value function_strftime(Interpreter& in, CallArguments arguments) {
  const Bound bound("strftime_now", std::move(arguments), {"format"}, 1);
  const Value format = bound.get(0);
  require_defined(format);
  if (!format.is_string())
    throw TemplateError(fmt::format("strftime() argument 1 must be str, not {}", type_name(format)));
  constexpr std::size_t kLongest = 4096;
  if (format.string().size() > kLongest)
    throw TemplateError(fmt::format("a date format of more than max_date_format_bytes = {} bytes", kLongest));
  std::string pattern = replace(format.string(), "%f", "000000", -1);
  if (pattern.empty()) return in.text("");
  pattern += '.';  // so that an empty result is not mistaken for a failure
  std::string result(64 * kLongest, '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const std::size_t size = std::strftime(result.data(), result.size(), pattern.c_str(), &in.local_time());
#pragma GCC diagnostic pop
  if (size == 0)
    throw TemplateError(
        fmt::format("a date format whose text is longer than max_date_bytes = {} bytes", 64 * kLongest));
  result.resize(size - 1);
  if (!valid_utf8(result)) throw TemplateError("a date format that makes no text");
  return in.text(std::move(result));
}

using FunctionPointer = Value (*)(Interpreter&, CallArguments);

FunctionPointer find_function(std::string_view name) {
  static const std::map<std::string_view, FunctionPointer> kFunctions = {
      {"cycler", function_cycler},         {"dict", function_dict},
      {"joiner", function_joiner},         {"namespace", function_namespace},
      {"raise_exception", function_raise}, {"range", function_range},
      {"strftime_now", function_strftime}};
  const auto found = kFunctions.find(name);
  return found == kFunctions.end() ? nullptr : found->second;
}

}  // namespace

std::optional<Value> find_attribute(Interpreter& in, const Value& value, std::string_view name) {
  static const Names kDict = {"get", "keys", "values", "items", "copy"};
  static const Names kDictUnsafe = {"clear", "pop", "popitem", "setdefault", "update"};
  static const Names kList = {"index", "count", "copy"};
  static const Names kListUnsafe = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  static const Names kTuple = {"index", "count"};
  static const Names kDunder = {"__class__",        "__init__",   "__dict__",         "__doc__",  "__len__",
                                "__getattribute__", "__eq__",     "__str__",          "__repr__", "__hash__",
                                "__new__",          "__reduce__", "__subclasshook__", "__dir__",  "__module__"};
  if (value.is(Kind::undefined)) require_defined(value);
  if (value.is(Kind::name_space)) {
    const Value* found = value.object<Namespace>().find(name);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (kDunder.contains(name)) return forbidden(in, value, name);
  switch (value.kind()) {
    case Kind::dict:
      return one_of(in, value, name, kDict, kDictUnsafe);
    case Kind::list:
      return one_of(in, value, name, kList, kListUnsafe);
    case Kind::tuple:
      for (std::size_t i = 0; i < value.object<Sequence>().names.size(); ++i)
        if (value.object<Sequence>().names[i] == name) return value.items()[i];
      return one_of(in, value, name, kTuple);
    case Kind::range: {
      const Range& range = value.object<Range>();
      if (name == "start") return Value(range.start);
      if (name == "stop") return Value(range.stop);
      if (name == "step") return Value(range.step);
      return one_of(in, value, name, kTuple);
    }
    case Kind::string:
      return is_string_method(name) ? std::optional(method(in, value, name)) : std::nullopt;
    case Kind::real:
      return one_of(in, value, name, {"is_integer"});
    case Kind::boolean:
    case Kind::integer:
      if (name == "real" || name == "numerator") return Value(value.integer());
      if (name == "imag") return Value(std::int64_t{0});
      if (name == "denominator") return Value(std::int64_t{1});
      return one_of(in, value, name, {"bit_length"});
    case Kind::loop:
      return loop_attribute(in, value, name);
    case Kind::macro:
      return name == "name" ? std::optional(in.text(value.object<Macro>().definition->name)) : std::nullopt;
    case Kind::cycler: {
      const Cycler& cycler = value.object<Cycler>();
      if (name == "current") return cycler.items.items()[cycler.position];
      return one_of(in, value, name, {"next", "reset"});
    }
    default:
      return std::nullopt;
  }
}

Value call_method(Interpreter& in, const Value& self, std::string_view name, CallArguments arguments) {
  switch (self.kind()) {
    case Kind::string:
      return call_string_method(in, self, name, std::move(arguments));
    case Kind::dict:
      return call_dict_method(in, self, name, std::move(arguments));
    case Kind::loop:
      return call_loop_method(in, self.object<Loop>(), name, std::move(arguments));
    case Kind::cycler:
      return call_cycler_method(in, self.object<Cycler>(), name, std::move(arguments));
    case Kind::real: {
      const Bound bound(name, std::move(arguments), {});
      return Value(std::isfinite(self.real()) && std::floor(self.real()) == self.real());
    }
    case Kind::boolean:
    case Kind::integer: {
      const Bound bound(name, std::move(arguments), {});
      const auto bits = static_cast<std::uint64_t>(self.integer());
      std::int64_t count = 0;
      for (std::uint64_t rest = self.integer() < 0 ? 0 - bits : bits; rest; rest >>= 1) ++count;
      return Value(count);
    }
    default:
      return call_sequence_method(in, self, name, std::move(arguments));
  }
}

bool is_function(std::string_view name) {
  return find_function(name) != nullptr;
}

Value call_function(Interpreter& in, std::string_view name, CallArguments arguments) {
  return find_function(name)(in, std::move(arguments));
}

}  // namespace heddle::jinja
