#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/chat_template/python.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  throw TemplateError(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a), type_name(b)));
}

[[noreturn]] void fail_overflow() {
  throw TemplateError("an integer beyond 64 bits (a limit of this interpreter)");
}

bool numbers(const Value& a, const Value& b) {
  return a.is_number() && b.is_number();
}
bool integers(const Value& a, const Value& b) {
  return a.is_integral() && b.is_integral();
}
bool sequence(const Value& value) {
  return value.is(Kind::list) || value.is(Kind::tuple);
}

Value repeated(Meter& meter, const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  const std::size_t size = value.is_string() ? value.string().size() : value.items().size() * sizeof(Value);
  if (size > 0 && count > meter.limits().max_value_bytes / size) meter.expect(meter.limits().max_value_bytes + 1);
  meter.expect(size * count);
  if (value.is_string()) {
    std::string text;
    text.reserve(size * count);
    if (size > 0)
      for (std::size_t i = 0; i < count; ++i) text += value.string();
    return Value::text(&meter, std::move(text), value.as_text().markup);
  }
  std::vector<Value> items;
  if (size > 0) {
    items.reserve(count * value.items().size());
    for (std::size_t i = 0; i < count; ++i) items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is(Kind::list) ? Value::list(meter, std::move(items)) : Value::tuple(meter, std::move(items));
}

// Python compares int and float exactly. This is exact up to 2^53, and beyond where long double has a 64-bit mantissa.
int compare_numbers(const Value& a, const Value& b) {
  if (integers(a, b)) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  const auto wide = [](const Value& value) {
    return value.is_integral() ? static_cast<long double>(value.integer()) : static_cast<long double>(value.real());
  };
  return wide(a) < wide(b) ? -1 : wide(a) > wide(b) ? 1 : 0;
}

bool is_nan(const Value& value) {
  return value.is(Kind::real) && std::isnan(value.real());
}

std::int64_t floor_of_quotient(std::int64_t a, std::int64_t b) {
  if (b == -1) {
    if (a == INT64_MIN) fail_overflow();
    return -a;
  }
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

double real_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

[[noreturn]] void fail_zero(std::string_view what) {
  throw TemplateError(std::string(what));
}

}  // namespace

void require_defined(const Value& value) {
  if (value.is_undefined()) throw TemplateError(value.object<Undefined>().message);
}

std::int64_t as_index(const Value& value) {
  if (!value.is_integral())
    throw TemplateError(fmt::format("'{}' object cannot be interpreted as an integer", type_name(value)));
  return value.integer();
}

double as_real(const Value& value) {
  require_defined(value);
  if (!value.is_number()) throw TemplateError(fmt::format("must be real number, not {}", type_name(value)));
  return value.real();
}

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail_overflow();
  return sum;
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) fail_overflow();
  return product;
}

std::int64_t whole(double value) {
  if (std::isnan(value)) throw TemplateError("cannot convert float NaN to integer");
  if (std::isinf(value)) throw TemplateError("cannot convert float infinity to integer");
  if (!(value >= -0x1p63 && value < 0x1p63)) fail_overflow();
  return static_cast<std::int64_t>(value);
}

bool equal(Meter& meter, const Value& a, const Value& b) {
  const Level level(meter);
  meter.step();
  if (numbers(a, b)) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      meter.step_bytes(std::min(a.string().size(), b.string().size()));
      return a.string() == b.string();
    case Kind::list:
    case Kind::tuple:
      if (a.shared() == b.shared()) return true;
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        [&](const Value& x, const Value& y) { return equal(meter, x, y); });
    case Kind::dict: {
      const auto& members = a.dict().members;
      if (members.size() != b.dict().members.size()) return false;
      return std::all_of(members.begin(), members.end(), [&](const auto& member) {
        const Value* other = b.dict().find(member.first);
        return other && equal(meter, member.second, *other);
      });
    }
    case Kind::range:
      return equal(meter, Value::list(meter, iterate(meter, a)), Value::list(meter, iterate(meter, b)));
    case Kind::view: {
      const View &x = a.object<View>(), &y = b.object<View>();
      if (x.part != y.part) return false;
      if (x.part == View::Part::values) return a.shared() == b.shared();
      if (x.part == View::Part::items) return equal(meter, x.dict, y.dict);
      const auto& members = x.dict.dict().members;
      if (members.size() != y.dict.dict().members.size()) return false;
      return std::all_of(members.begin(), members.end(),
                         [&](const auto& member) { return y.dict.dict().find(member.first) != nullptr; });
    }
    case Kind::method:
      return a.object<Method>().name == b.object<Method>().name &&
             equal(meter, a.object<Method>().self, b.object<Method>().self);
    default:
      return a.shared() == b.shared();
  }
}

bool ordered(Meter& meter, const Value& a, const Value& b, Order order) {
  static constexpr std::string_view kNames[] = {"<", "<=", ">", ">="};
  const Level level(meter);
  meter.step();
  const auto holds = [&](int sign) {
    switch (order) {
      case Order::less:
        return sign < 0;
      case Order::less_equal:
        return sign <= 0;
      case Order::greater:
        return sign > 0;
      case Order::greater_equal:
        return sign >= 0;
    }
    return false;
  };
  if (numbers(a, b)) return !is_nan(a) && !is_nan(b) && holds(compare_numbers(a, b));
  if (a.is_string() && b.is_string()) {
    meter.step_bytes(std::min(a.string().size(), b.string().size()));
    return holds(a.string().compare(b.string()));  // UTF-8 preserves the order of code points
  }
  if (sequence(a) && a.kind() == b.kind()) {
    const std::size_t common = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < common; ++i)
      if (!equal(meter, a.items()[i], b.items()[i])) return ordered(meter, a.items()[i], b.items()[i], order);
    return holds(a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size());
  }
  require_defined(a);
  require_defined(b);
  throw TemplateError(fmt::format("'{}' not supported between instances of '{}' and '{}'",
                                  kNames[static_cast<int>(order)], type_name(a), type_name(b)));
}

bool less(Meter& meter, const Value& a, const Value& b) {
  return ordered(meter, a, b, Order::less);
}

bool contains(Meter& meter, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string:
      if (!item.is_string()) {
        throw TemplateError(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      meter.step_bytes(container.string().size());
      return container.string().find(item.string()) != std::string_view::npos;
    case Kind::dict:
      return container.dict().find(item) != nullptr;
    case Kind::view:
      if (container.object<View>().part == View::Part::keys)
        return container.object<View>().dict.dict().find(item) != nullptr;
      break;
    case Kind::iterator: {  // consumes the elements it passes
      Iterator& iterator = container.object<Iterator>();
      while (iterator.next < iterator.items.size())
        if (equal(meter, iterator.items[iterator.next++], item)) return true;
      return false;
    }
    default:
      break;
  }
  if (!iterable(container))
    throw TemplateError(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  const std::vector<Value> items = iterate(meter, container);
  return std::any_of(items.begin(), items.end(), [&](const Value& other) {
    return (item.shared() && item.shared() == other.shared()) || equal(meter, item, other);
  });
}

Value add(Meter& meter, const Value& a, const Value& b) {
  if (integers(a, b)) return Value(checked_add(a.integer(), b.integer()));
  if (numbers(a, b)) return Value(a.real() + b.real());
  if (a.is_string() && b.is_string()) {
    meter.expect(a.string().size() + b.string().size());
    const bool markup = a.as_text().markup || b.as_text().markup;
    const auto part = [&](const Value& value) {
      return markup && !value.as_text().markup ? escape_html(value.string()) : std::string(value.string());
    };
    return Value::text(&meter, part(a) + part(b), markup);
  }
  if (sequence(a) && a.kind() == b.kind()) {
    meter.expect((a.items().size() + b.items().size()) * sizeof(Value));
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::list) ? Value::list(meter, std::move(items)) : Value::tuple(meter, std::move(items));
  }
  if (a.is_string() && !b.is_undefined())
    throw TemplateError(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  fail_operands("+", a, b);
}

Value subtract(Meter&, const Value& a, const Value& b) {
  if (integers(a, b)) {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(a.integer(), b.integer(), &difference)) fail_overflow();
    return Value(difference);
  }
  if (numbers(a, b)) return Value(a.real() - b.real());
  fail_operands("-", a, b);
}

Value multiply(Meter& meter, const Value& a, const Value& b) {
  if (integers(a, b)) return Value(checked_multiply(a.integer(), b.integer()));
  if (numbers(a, b)) return Value(a.real() * b.real());
  if ((a.is_string() || sequence(a)) && b.is_integral()) return repeated(meter, a, b.integer());
  if ((b.is_string() || sequence(b)) && a.is_integral()) return repeated(meter, b, a.integer());
  fail_operands("*", a, b);
}

Value divide(Meter&, const Value& a, const Value& b) {
  if (!numbers(a, b)) fail_operands("/", a, b);
  if (b.real() == 0) fail_zero(integers(a, b) ? "division by zero" : "float division by zero");
  return Value(a.real() / b.real());
}

Value floor_divide(Meter&, const Value& a, const Value& b) {
  if (!numbers(a, b)) fail_operands("//", a, b);
  if (b.real() == 0) fail_zero(integers(a, b) ? "integer division or modulo by zero" : "float floor division by zero");
  if (integers(a, b)) return Value(floor_of_quotient(a.integer(), b.integer()));
  const double x = a.real(), y = b.real();
  // As in CPython: computed from the remainder, so that (x // y) * y + x % y equals x.
  const double quotient = (x - real_modulo(x, y)) / y;
  if (quotient == 0) return Value(std::copysign(0.0, x / y));
  const double floored = std::floor(quotient);
  return Value(quotient - floored > 0.5 ? floored + 1 : floored);
}

Value modulo(Meter& meter, const Value& a, const Value& b) {
  if (a.is_string()) return Value::text(&meter, format_percent(meter, a.string(), b));
  if (!numbers(a, b)) fail_operands("%", a, b);
  if (b.real() == 0) fail_zero(integers(a, b) ? "integer division or modulo by zero" : "float modulo");
  if (integers(a, b)) {
    if (b.integer() == -1) return Value(std::int64_t{0});
    const std::int64_t rest = a.integer() % b.integer();
    return Value(rest != 0 && (rest < 0) != (b.integer() < 0) ? rest + b.integer() : rest);
  }
  return Value(real_modulo(a.real(), b.real()));
}

Value power(Meter& meter, const Value& a, const Value& b) {
  if (!numbers(a, b)) fail_operands("** or pow()", a, b);
  if (integers(a, b) && b.integer() >= 0) {
    std::int64_t result = 1, base = a.integer();
    for (std::int64_t rest = b.integer(); rest > 0; rest >>= 1) {
      meter.step();
      if (rest & 1) result = checked_multiply(result, base);
      if (rest > 1) {
        if (base == 0 || base == 1) break;
        if (base == -1) return Value(std::int64_t{b.integer() & 1 ? -1 : 1});
        base = checked_multiply(base, base);
      }
    }
    return Value(result);
  }
  if (a.real() == 0 && b.real() < 0) fail_zero("0.0 cannot be raised to a negative power");
  const double result = std::pow(a.real(), b.real());
  if (std::isnan(result) && !std::isnan(a.real()) && !std::isnan(b.real()))
    throw TemplateError("a complex number (this interpreter has none)");
  if (std::isinf(result) && !std::isinf(a.real()) && !std::isinf(b.real()))
    throw TemplateError("(34, 'Numerical result out of range')");
  return Value(result);
}

Value negate(Meter&, const Value& value) {
  if (value.is_integral()) return Value(checked_multiply(value.integer(), -1));
  if (value.is(Kind::real)) return Value(-value.real());
  require_defined(value);
  throw TemplateError(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
}

Value positive(Meter&, const Value& value) {
  if (value.is_integral()) return Value(value.integer());
  if (value.is(Kind::real)) return value;
  require_defined(value);
  throw TemplateError(fmt::format("bad operand type for unary +: '{}'", type_name(value)));
}

std::optional<Value> item(Meter& meter, const Value& value, const Value& index) {
  require_defined(value);
  if (value.is(Kind::dict)) {
    if (index.is(Kind::list) || index.is(Kind::dict) || index.is(Kind::view)) return std::nullopt;
    const Value* found = value.dict().find(index);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (!index.is_integral()) return std::nullopt;
  const auto size = length(value);
  if (!size) return std::nullopt;
  const std::int64_t at = index.integer() < 0 ? index.integer() + *size : index.integer();
  if (at < 0 || at >= *size) return std::nullopt;
  switch (value.kind()) {
    case Kind::list:
    case Kind::tuple:
      return value.items()[static_cast<std::size_t>(at)];
    case Kind::range:
      return Value(value.object<Range>().start + at * value.object<Range>().step);
    case Kind::string: {
      const std::string_view text = value.string();
      std::size_t byte = static_cast<std::size_t>(at);
      if (!value.as_text().ascii()) {
        meter.step_bytes(text.size());
        byte = byte_of(text, byte);
      }
      return Value::text(&meter, std::string(text.substr(byte, code_point_size(text, byte))));
    }
    default:
      return std::nullopt;
  }
}

std::optional<Value> slice(Meter& meter, const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  const bool sliceable = sequence(value) || value.is_string() || value.is(Kind::range);
  if (!sliceable) return std::nullopt;
  for (const Value* part : {&start, &stop, &step})
    if (!part->is_none() && !part->is_integral()) return std::nullopt;
  const std::int64_t by = step.is_none() ? 1 : step.integer();
  if (by == 0) throw TemplateError("slice step cannot be zero");
  const std::int64_t size = *length(value);
  const auto clamp = [&](const Value& bound, std::int64_t absent) {
    if (bound.is_none()) return absent;
    const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
    std::int64_t at = bound.integer();
    if (at < 0) at = at < -size ? low : at + size;
    return std::clamp(at, low, std::max(low, high));
  };
  const std::int64_t from = clamp(start, by > 0 ? 0 : size - 1), to = clamp(stop, by > 0 ? size : -1);
  std::vector<std::int64_t> places;
  for (std::int64_t at = from; by > 0 ? at < to : at > to;) {
    meter.step();
    places.push_back(at);
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  if (value.is(Kind::range)) {
    const Range& range = value.object<Range>();
    const std::int64_t first = range.start + from * range.step, last = range.start + to * range.step;
    return Value(Kind::range, std::make_shared<Range>(&meter, first, last, checked_multiply(range.step, by)));
  }
  if (!value.is_string()) {
    std::vector<Value> items;
    items.reserve(places.size());
    for (const std::int64_t at : places) items.push_back(value.items()[static_cast<std::size_t>(at)]);
    return value.is(Kind::list) ? Value::list(meter, std::move(items)) : Value::tuple(meter, std::move(items));
  }
  const std::string_view text = value.string();
  std::string result;
  if (value.as_text().ascii()) {
    for (const std::int64_t at : places) result += text[static_cast<std::size_t>(at)];
  } else {
    meter.step_bytes(text.size());
    meter.expect(value.as_text().length * sizeof(std::size_t));
    std::vector<std::size_t> starts;
    for (std::size_t at = 0; at < text.size(); at += code_point_size(text, at)) starts.push_back(at);
    for (const std::int64_t at : places) {
      const std::size_t byte = starts[static_cast<std::size_t>(at)];
      result += text.substr(byte, code_point_size(text, byte));
    }
  }
  return Value::text(&meter, std::move(result), value.as_text().markup);
}

}  // namespace heddle::jinja
