// Python's operators, and conversions of values to text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/chat_template/value.h"

namespace heddle::jinja {

// All throw TemplateError where Python or jinja2 would raise, and at the limits of `meter`.

std::string to_text(Meter& meter, const Value& value);  // str()
std::string to_repr(Meter& meter, const Value& value);  // repr()
std::string real_text(double value);                    // repr() of a float

struct JsonStyle {
  std::optional<std::string> indent;  // one level of it
  std::optional<std::string> item_separator, key_separator;
  enum class Escape { none, ascii } escape = Escape::none;
  enum class Keys { as_given, sorted } keys = Keys::as_given;
};
std::string to_json(Meter& meter, const Value& value, const JsonStyle& style);  // json.dumps

bool equal(Meter& meter, const Value& a, const Value& b);
bool less(Meter& meter, const Value& a, const Value& b);  // a < b
enum class Order { less, less_equal, greater, greater_equal };
bool ordered(Meter& meter, const Value& a, const Value& b, Order order);
bool contains(Meter& meter, const Value& container, const Value& item);

Value add(Meter& meter, const Value& a, const Value& b);
Value subtract(Meter& meter, const Value& a, const Value& b);
Value multiply(Meter& meter, const Value& a, const Value& b);
Value divide(Meter& meter, const Value& a, const Value& b);
Value floor_divide(Meter& meter, const Value& a, const Value& b);
Value modulo(Meter& meter, const Value& a, const Value& b);  // for strings: printf-style formatting
Value power(Meter& meter, const Value& a, const Value& b);
Value negate(Meter& meter, const Value& value);
Value positive(Meter& meter, const Value& value);

// value[index]; nothing where Python raises TypeError or LookupError.
std::optional<Value> item(Meter& meter, const Value& value, const Value& index);
// value[start:stop:step], where each is None or an integer; nothing where Python raises TypeError.
std::optional<Value> slice(Meter& meter, const Value& value, const Value& start, const Value& stop, const Value& step);

// printf-style: `arguments` is a tuple, a dict or one value.
std::string format_percent(Meter& meter, std::string_view format, const Value& arguments);
// Formats a number with a format specification of str.format(): 'd', 'f', 'e', 'g', 's' ...
std::string format_spec(Meter& meter, const Value& value, std::string_view specification);

// If the value is undefined, throws its message.
void require_defined(const Value& value);
// An integer, as range() or an index requires it; throws "'str' object cannot be interpreted as an integer".
std::int64_t as_index(const Value& value);
double as_real(const Value& value);

// Arithmetic that throws on overflow of 64 bits.
std::int64_t checked_add(std::int64_t a, std::int64_t b);
std::int64_t checked_multiply(std::int64_t a, std::int64_t b);
std::int64_t whole(double value);  // int(): towards zero; throws where no int64 fits

}  // namespace heddle::jinja
