#include "text/chat_template/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "text/chat_template/interpreter.h"
#include "text/chat_template/python.h"
#include "text/chat_template/sequence_filters.h"
#include "text/chat_template/text.h"
#include "text/chat_template/text_filters.h"

namespace heddle::jinja {
namespace {

Value filter_abs(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("abs", std::move(arguments), {});
  if (!value.is_number()) throw TemplateError(fmt::format("bad operand type for abs(): '{}'", type_name(value)));
  if (value.is(Kind::real)) return Value(std::fabs(value.real()));
  return value.integer() < 0 ? negate(in.meter(), value) : Value(value.integer());
}

Value filter_attr(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("attr", std::move(arguments), {"name"}, 1);
  const Value name = bound.get(0);
  if (!name.is_string()) throw TemplateError("attr: the name must be a string");
  if (value.is(Kind::dict)) {  // only attributes, not items
    CallArguments none;
    const Value empty = Dict::make(in.meter(), {});
    const Value found = in.attribute(empty, name.string());
    return found.is_undefined() ? found : in.attribute(value, name.string());
  }
  return in.attribute(value, name.string());
}

Value filter_default(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("default", std::move(arguments), {"default_value", "boolean"});
  if (value.is_undefined() || (truth(bound.get(1)) && !truth(value))) return bound.get(0, in.text(""));
  return value;
}

std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t base) {
  std::string number(strip(text));
  const bool negative = number.starts_with('-');
  if (negative || number.starts_with('+')) number.erase(0, 1);
  const auto prefixed = [&](char small) {
    return number.size() > 2 && number[0] == '0' && (number[1] | 0x20) == small;
  };
  const bool hex = prefixed('x'), octal = prefixed('o'), binary = prefixed('b');
  if ((hex && (base == 16 || base == 0)) || (octal && (base == 8 || base == 0)) ||
      (binary && (base == 2 || base == 0))) {
    number.erase(0, 2);
    if (number.starts_with('_')) number.erase(0, 1);
    if (base == 0) base = hex ? 16 : octal ? 8 : 2;
  } else if (base == 0) {
    base = 10;
    if (number.size() > 1 && number[0] == '0' && number.find_first_not_of("0_") != std::string::npos)
      return std::nullopt;
  }
  if (base < 2 || base > 36) throw TemplateError("int() base must be >= 2 and <= 36, or 0");
  for (std::size_t i = 0; i < number.size(); ++i)
    if (number[i] == '_' && (i == 0 || i + 1 == number.size() || number[i + 1] == '_')) return std::nullopt;
  std::erase(number, '_');
  if (number.empty() || number[0] == '-' || number[0] == '+') return std::nullopt;
  if (negative) number.insert(0, "-");
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), value, static_cast<int>(base));
  if (end != number.data() + number.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    throw TemplateError("an integer beyond 64 bits (a limit of this interpreter)");
  return value;
}

Value filter_float(Interpreter&, const Value& value, CallArguments arguments) {
  const Bound bound("float", std::move(arguments), {"default"});
  require_defined(value);
  if (value.is_number()) return Value(value.real());
  if (value.is_string())
    if (const std::optional<double> number = parse_real(value.string())) return Value(*number);
  return bound.get(0, Value(0.0));
}

Value filter_int(Interpreter&, const Value& value, CallArguments arguments) {
  const Bound bound("int", std::move(arguments), {"default", "base"});
  require_defined(value);
  Value fallback = bound.get(0, Value(std::int64_t{0}));
  if (value.is_integral()) return Value(value.integer());
  if (value.is(Kind::real)) {
    if (std::isnan(value.real())) return fallback;
    return Value(whole(value.real()));
  }
  if (!value.is_string()) return fallback;
  const std::int64_t base = bound.has(1) ? as_index(bound.get(1)) : 10;
  if (const auto number = parse_integer(value.string(), base)) return Value(*number);
  const std::optional<double> real = parse_real(value.string());
  if (!real || !std::isfinite(*real)) return fallback;
  return Value(whole(*real));
}

// round(): rounds the exact decimal value of the float, halves to even.
double rounded(double value, std::int64_t precision) {
  if (!std::isfinite(value) || precision > 323) return value;
  if (precision < -308) return std::copysign(0.0, value);
  if (precision >= 0) return std::strtod(fmt::format("{:.{}f}", value, static_cast<int>(precision)).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

Value filter_round(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("round", std::move(arguments), {"precision", "method"});
  const Value method = bound.get(1, in.text("common"));
  const std::string_view how = method.is_string() ? method.string() : "";
  if (how != "common" && how != "ceil" && how != "floor") throw TemplateError("method must be common, ceil or floor");
  const Value precision = bound.get(0, Value(std::int64_t{0}));
  if (how == "common") {
    if (!value.is_number())
      throw TemplateError(fmt::format("type {} doesn't define __round__ method", type_name(value)));
    if (precision.is_none()) {
      if (value.is_integral()) return Value(value.integer());
      return Value(whole(std::nearbyint(value.real())));
    }
    const std::int64_t digits = as_index(precision);
    if (value.is(Kind::real)) return Value(rounded(value.real(), digits));
    if (digits >= 0) return Value(value.integer());
    if (digits < -18) return Value(std::int64_t{0});
    std::int64_t unit = 1;
    for (std::int64_t i = digits; i < 0; ++i) unit *= 10;
    std::int64_t quotient = value.integer() / unit;
    const std::int64_t rest = std::abs(value.integer() % unit);
    if (rest > unit / 2 || (rest == unit / 2 && quotient % 2 != 0)) quotient += value.integer() < 0 ? -1 : 1;
    return Value(checked_multiply(quotient, unit));
  }
  Meter& meter = in.meter();
  const Value scale = power(meter, Value(std::int64_t{10}), precision);
  const Value scaled = multiply(meter, value, scale);
  if (!scaled.is_number()) throw TemplateError(fmt::format("must be real number, not {}", type_name(scaled)));
  const Value cut = scaled.is_integral()
                        ? scaled
                        : Value(whole(how == "ceil" ? std::ceil(scaled.real()) : std::floor(scaled.real())));
  return divide(meter, cut, scale);
}

Value filter_length(Interpreter&, const Value& value, CallArguments arguments) {
  const Bound bound("length", std::move(arguments), {});
  if (value.is(Kind::loop)) return Value(value.object<Loop>().total());
  const auto size = length(value);
  if (!size) throw TemplateError(fmt::format("object of type '{}' has no len()", type_name(value)));
  return Value(*size);
}

Value filter_items(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("items", std::move(arguments), {});
  if (value.is_undefined()) return Value::iterator(in.meter(), {});
  if (!value.is(Kind::dict)) throw TemplateError("Can only get item pairs from a mapping.");
  const Value view(Kind::view, std::make_shared<View>(&in.meter(), value, View::Part::items));
  return Value::iterator(in.meter(), iterate(in.meter(), view));
}

Value filter_tojson(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("tojson", std::move(arguments), {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  if (truth(bound.get(0))) style.escape = JsonStyle::Escape::ascii;
  if (truth(bound.get(3))) style.keys = JsonStyle::Keys::sorted;
  const Value indent = bound.get(1);
  constexpr std::int64_t kWidest = 1000;
  if (indent.is_integral()) {
    if (indent.integer() > kWidest)
      throw TemplateError(fmt::format("tojson: an indent above max_indent = {}", kWidest));
    style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(indent.integer(), 0)), ' ');
  } else if (indent.is_string()) {
    style.indent = indent.string();
  } else if (!indent.is_none()) {
    throw TemplateError(fmt::format("can't multiply sequence by non-int of type '{}'", type_name(indent)));
  }
  if (const Value separators = bound.get(2); !separators.is_none()) {
    const std::vector<Value> pair = iterate(in.meter(), separators);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      throw TemplateError("tojson: separators must be two strings");
    style.item_separator = pair[0].string();
    style.key_separator = pair[1].string();
  }
  return in.text(to_json(in.meter(), value, style));
}

}  // namespace

Filter find_filter(std::string_view name) {
  static const std::map<std::string_view, Filter> kFilters = [] {
    std::map<std::string_view, Filter> filters = {
        {"abs", filter_abs},         {"attr", filter_attr},   {"count", filter_length},  {"d", filter_default},
        {"default", filter_default}, {"float", filter_float}, {"int", filter_int},       {"items", filter_items},
        {"length", filter_length},   {"round", filter_round}, {"tojson", filter_tojson},
    };
    filters.merge(text_filters());
    filters.merge(sequence_filters());
    return filters;
  }();
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

std::string unknown_filter(std::string_view name, std::string_view end) {
  static const std::set<std::string_view> kLeftOut = {"center",    "filesizeformat", "forceescape", "pprint",
                                                      "random",    "striptags",      "urlencode",   "urlize",
                                                      "wordcount", "wordwrap",       "xmlattr"};
  if (kLeftOut.contains(name)) return fmt::format("jinja2's filter {} is not supported", in_quotes(name));
  return fmt::format("No filter named {}{}", in_quotes(name), end);
}

}  // namespace heddle::jinja
