#include "text/chat_template/tests.h"

#include <map>

#include "text/chat_template/filters.h"
#include "text/chat_template/interpreter.h"
#include "text/chat_template/python.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

void take_none(std::string_view name, CallArguments arguments) {
  const Bound bound(name, std::move(arguments), {});
}

template <Kind kind>
bool is_kind(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("test", std::move(arguments));
  return value.is(kind);
}

template <Order order>
bool in_order(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("comparison", std::move(arguments), {"other"}, 1);
  return ordered(in.meter(), value, bound.get(0), order);
}

bool same(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("eq", std::move(arguments), {"other"}, 1);
  return equal(in.meter(), value, bound.get(0));
}

bool different(Interpreter& in, const Value& value, CallArguments arguments) {
  return !same(in, value, std::move(arguments));
}

bool modulo_is(Interpreter& in, const Value& value, std::int64_t divisor, std::int64_t rest) {
  return equal(in.meter(), modulo(in.meter(), value, Value(divisor)), Value(rest));
}

template <std::int64_t rest>
bool parity(Interpreter& in, const Value& value, CallArguments arguments) {
  take_none("parity", std::move(arguments));
  return modulo_is(in, value, 2, rest);
}

bool divisible(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("divisibleby", std::move(arguments), {"num"}, 1);
  return equal(in.meter(), modulo(in.meter(), value, bound.get(0)), Value(std::int64_t{0}));
}

bool defined(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("defined", std::move(arguments));
  return !value.is_undefined();
}

template <bool wanted>
bool is_boolean(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("test", std::move(arguments));
  return value.is(Kind::boolean) && value.boolean() == wanted;
}

bool number(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("number", std::move(arguments));
  return value.is_number();
}

bool sequence(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("sequence", std::move(arguments));
  return length(value) && !value.is(Kind::view);
}

bool is_iterable(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("iterable", std::move(arguments));
  return iterable(value) || value.is(Kind::loop);
}

bool callable(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("callable", std::move(arguments));
  switch (value.kind()) {
    case Kind::undefined:  // it has a __call__, which raises
    case Kind::macro:
    case Kind::loop:
    case Kind::method:
    case Kind::function:
    case Kind::joiner:
      return true;
    default:
      return false;
  }
}

bool same_object(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("sameas", std::move(arguments), {"other"}, 1);
  const Value other = bound.get(0);
  if (value.kind() != other.kind()) return false;
  return value.shared() ? value.shared() == other.shared() : equal(in.meter(), value, other);
}

bool escaped(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("escaped", std::move(arguments));
  return value.is_string() && value.as_text().markup;
}

bool inside(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("in", std::move(arguments), {"seq"}, 1);
  return contains(in.meter(), bound.get(0), value);
}

template <CharClass what>
bool cased(Interpreter& in, const Value& value, CallArguments arguments) {
  take_none("test", std::move(arguments));
  return is_all(to_text(in.meter(), value), what);
}

bool filter_exists(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("filter", std::move(arguments));
  return value.is_string() && find_filter(value.string());
}

bool test_exists(Interpreter&, const Value& value, CallArguments arguments) {
  take_none("test", std::move(arguments));
  return value.is_string() && find_test(value.string());
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::map<std::string_view, Test> kTests = {
      {"!=", different},
      {"<", in_order<Order::less>},
      {"<=", in_order<Order::less_equal>},
      {"==", same},
      {">", in_order<Order::greater>},
      {">=", in_order<Order::greater_equal>},
      {"boolean", is_kind<Kind::boolean>},
      {"callable", callable},
      {"defined", defined},
      {"divisibleby", divisible},
      {"eq", same},
      {"equalto", same},
      {"escaped", escaped},
      {"even", parity<0>},
      {"false", is_boolean<false>},
      {"filter", filter_exists},
      {"float", is_kind<Kind::real>},
      {"ge", in_order<Order::greater_equal>},
      {"greaterthan", in_order<Order::greater>},
      {"gt", in_order<Order::greater>},
      {"in", inside},
      {"integer", is_kind<Kind::integer>},
      {"iterable", is_iterable},
      {"le", in_order<Order::less_equal>},
      {"lessthan", in_order<Order::less>},
      {"lower", cased<CharClass::lower>},
      {"lt", in_order<Order::less>},
      {"mapping", is_kind<Kind::dict>},
      {"ne", different},
      {"none", is_kind<Kind::none>},
      {"number", number},
      {"odd", parity<1>},
      {"sameas", same_object},
      {"sequence", sequence},
      {"string", is_kind<Kind::string>},
      {"test", test_exists},
      {"true", is_boolean<true>},
      {"undefined", is_kind<Kind::undefined>},
      {"upper", cased<CharClass::upper>},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace heddle::jinja
