// printf-style formatting and the format specifications of str.format().
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "text/chat_template/python.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

struct Specification {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false, comma = false;
  std::size_t width = 0;
  int precision = -1;
  char type = 0;
};

constexpr std::size_t kMaxWidth = 100'000;
constexpr int kMaxPrecision = 400;

std::string padded(Meter& meter, const Specification& spec, std::string_view sign, std::string body, char align) {
  const std::size_t size = count_code_points(sign) + count_code_points(body);
  if (size >= spec.width) return std::string(sign) + body;
  const std::size_t missing = spec.width - size;
  meter.expect(spec.width * 4);
  const auto fill = [&](std::size_t times) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text += spec.fill;
    return text;
  };
  switch (align) {
    case '<':
      return std::string(sign) + body + fill(missing);
    case '^':
      return fill(missing / 2) + std::string(sign) + body + fill(missing - missing / 2);
    case '=':
      return std::string(sign) + fill(missing) + body;
    default:
      return fill(missing) + std::string(sign) + body;
  }
}

std::string with_commas(std::string digits) {
  const std::size_t point = std::min(digits.find_first_of(".e"), digits.size());
  for (std::size_t at = point; at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string fixed_text(double magnitude, const Specification& spec) {
  const bool upper_case = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  if (!std::isfinite(magnitude)) {
    const char* name = std::isnan(magnitude) ? "nan" : "inf";
    return upper_case ? upper(name) : name;
  }
  const char type = spec.type == '%' ? 'f' : spec.type;
  const double number = spec.type == '%' ? magnitude * 100 : magnitude;
  const std::string pattern = std::string("%") + (spec.alternate ? "#" : "") + ".*" + type;
  std::string text(static_cast<std::size_t>(precision) + 400, '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int size = std::snprintf(text.data(), text.size(), pattern.c_str(), precision, number);
#pragma GCC diagnostic pop
  text.resize(static_cast<std::size_t>(size));
  return spec.type == '%' ? text + "%" : text;
}

std::string integer_digits(std::uint64_t magnitude, const Specification& spec) {
  const std::string_view prefix = !spec.alternate    ? ""
                                  : spec.type == 'x' ? "0x"
                                  : spec.type == 'X' ? "0X"
                                  : spec.type == 'o' ? "0o"
                                  : spec.type == 'b' ? "0b"
                                                     : "";
  std::string digits = spec.type == 'x'   ? fmt::format("{:x}", magnitude)
                       : spec.type == 'X' ? fmt::format("{:X}", magnitude)
                       : spec.type == 'o' ? fmt::format("{:o}", magnitude)
                       : spec.type == 'b' ? fmt::format("{:b}", magnitude)
                                          : fmt::format("{}", magnitude);
  return std::string(prefix) + digits;
}

std::string_view sign_of(bool negative, char sign) {
  return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

std::string format_number(Meter& meter, const Value& value, Specification spec) {
  const bool as_integer =
      value.is_integral() && (spec.type == 0 || std::string_view("dxXobn").find(spec.type) != std::string_view::npos);
  const char align = spec.align ? spec.align : '>';
  if (as_integer) {
    if (spec.precision >= 0) throw TemplateError("Precision not allowed in integer format specifier");
    const bool negative = value.integer() < 0;
    const auto bits = static_cast<std::uint64_t>(value.integer());
    std::string digits = integer_digits(negative ? 0 - bits : bits, spec);
    return padded(meter, spec, sign_of(negative, spec.sign), spec.comma ? with_commas(digits) : digits, align);
  }
  if (spec.type != 0 && std::string_view("eEfFgG%n").find(spec.type) == std::string_view::npos)
    throw TemplateError(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value)));
  const double number = as_real(value);
  std::string body;
  if (spec.type == 0 && spec.precision < 0) {
    body = real_text(std::fabs(number));
  } else {
    const bool general = spec.type == 0;
    if (general) spec.type = 'g';
    if (spec.type == 'n') spec.type = 'g';
    if (spec.type == 'g' && spec.precision == 0) spec.precision = 1;
    body = fixed_text(std::fabs(number), spec);
    if (general && body.find_first_of(".en") == std::string::npos) body += ".0";
  }
  return padded(meter, spec, sign_of(std::signbit(number) && !std::isnan(number), spec.sign),
                spec.comma ? with_commas(body) : body, align);
}

std::size_t read_number(std::string_view text, std::size_t& at) {
  std::size_t number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = number * 10 + static_cast<std::size_t>(text[at] - '0');
    if (number > kMaxWidth) throw TemplateError(fmt::format("a width or precision above max_width = {}", kMaxWidth));
  }
  return number;
}

int read_precision(std::string_view text, std::size_t& at) {
  const std::size_t number = read_number(text, at);
  if (number > kMaxPrecision) throw TemplateError(fmt::format("a precision above max_precision = {}", kMaxPrecision));
  return static_cast<int>(number);
}

Specification parse_specification(std::string_view text) {
  Specification spec;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t place) {
    return place < text.size() && std::string_view("<>^=").find(text[place]) != std::string_view::npos;
  };
  if (!text.empty() && is_align(code_point_size(text, 0))) {
    at = code_point_size(text, 0);
    spec.fill = text.substr(0, at);
    spec.align = text[at++];
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  if (at < text.size() && std::string_view("+- ").find(text[at]) != std::string_view::npos) spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') spec.alternate = true, ++at;
  if (at < text.size() && text[at] == '0') {
    if (!spec.align) spec.fill = "0", spec.align = '=';
    ++at;
  }
  spec.width = read_number(text, at);
  if (at < text.size() && text[at] == ',') spec.comma = true, ++at;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (at == text.size() || text[at] < '0' || text[at] > '9')
      throw TemplateError("Format specifier missing precision");
    spec.precision = read_precision(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) throw TemplateError("Invalid format specifier");
  return spec;
}

class PercentFormat {
 public:
  PercentFormat(Meter& meter, std::string_view format, const Value& arguments)
      : meter_(meter), format_(format), arguments_(arguments) {}

  std::string run() {
    while (at_ < format_.size()) {
      const std::size_t percent = std::min(format_.find('%', at_), format_.size());
      put(format_.substr(at_, percent - at_));
      at_ = percent;
      if (at_ < format_.size()) conversion();
    }
    const bool mapping = arguments_.is(Kind::dict);
    if (arguments_.is(Kind::tuple) ? used_ < arguments_.items().size() : used_ == 0 && !mapping && !keyed_)
      throw TemplateError("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  void put(std::string_view text) {
    meter_.step_bytes(text.size());
    meter_.expect(out_.size() + text.size());
    out_ += text;
  }

  char peek() const {
    if (at_ >= format_.size()) throw TemplateError("incomplete format");
    return format_[at_];
  }

  Value next() {
    if (arguments_.is(Kind::tuple)) {
      if (used_ >= arguments_.items().size()) throw TemplateError("not enough arguments for format string");
      return arguments_.items()[used_++];
    }
    if (used_++ > 0) throw TemplateError("not enough arguments for format string");
    return arguments_;
  }

  void conversion() {
    ++at_;
    std::optional<Value> named;
    if (peek() == '(') {
      const std::size_t close = format_.find(')', at_);
      if (close == std::string_view::npos) throw TemplateError("incomplete format key");
      if (!arguments_.is(Kind::dict)) throw TemplateError("format requires a mapping");
      const std::string_view key = format_.substr(at_ + 1, close - at_ - 1);
      const Value* found = arguments_.dict().find(key);
      if (!found) throw TemplateError(in_quotes(key));
      named = *found;
      keyed_ = true;
      at_ = close + 1;
    }
    Specification spec;
    for (;; ++at_) {
      const char flag = peek();
      if (flag == '-')
        spec.align = '<';
      else if (flag == '+')
        spec.sign = '+';
      else if (flag == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (flag == '#')
        spec.alternate = true;
      else if (flag == '0')
        spec.fill = "0";
      else
        break;
    }
    if (peek() == '*') throw TemplateError("'*' widths in formats are not supported");
    spec.width = read_number(format_, at_);
    if (peek() == '.') {
      ++at_;
      spec.precision = read_precision(format_, at_);
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    spec.type = peek();
    ++at_;
    if (spec.type == '%') return put("%");
    put(converted(named ? *named : next(), spec));
  }

  std::string converted(const Value& value, Specification spec) {
    const bool zeros = spec.fill == "0";
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        spec.fill = " ";
        std::string text = spec.type == 's' ? to_text(meter_, value) : to_repr(meter_, value);
        if (spec.precision >= 0) text.resize(byte_of(text, static_cast<std::size_t>(spec.precision)));
        return padded(meter_, spec, "", std::move(text), spec.align);
      }
      case 'c': {
        spec.fill = " ";
        if (value.is_string() && value.as_text().length == 1)
          return padded(meter_, spec, "", std::string(value.string()), spec.align);
        const std::int64_t point = as_index(value);
        if (point < 0 || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
          throw TemplateError("%c arg not in range(0x110000)");
        std::string text;
        append_code_point(text, static_cast<char32_t>(point));
        return padded(meter_, spec, "", std::move(text), spec.align);
      }
      case 'd':
      case 'i':
      case 'u': {
        require_defined(value);
        if (!value.is_number())
          throw TemplateError(
              fmt::format("%{} format: a real number is required, not {}", spec.type, type_name(value)));
        return integer(value.is_integral() ? value.integer() : whole(value.real()), spec, zeros);
      }
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral())
          throw TemplateError(fmt::format("%{} format: an integer is required, not {}", spec.type, type_name(value)));
        return integer(value.integer(), spec, zeros);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        const double number = as_real(value);
        if (spec.align == '<' || !std::isfinite(number)) spec.fill = " ";
        return padded(meter_, spec, sign_of(std::signbit(number), spec.sign), fixed_text(std::fabs(number), spec),
                      spec.align                       ? spec.align
                      : zeros && std::isfinite(number) ? '='
                                                       : '>');
      }
      default:
        throw TemplateError(fmt::format("unsupported format character '{}'", spec.type));
    }
  }

  std::string integer(std::int64_t number, Specification spec, bool zeros) {
    const auto bits = static_cast<std::uint64_t>(number);
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    std::string digits = integer_digits(number < 0 ? 0 - bits : bits, spec);
    while (static_cast<int>(digits.size()) < spec.precision) digits.insert(0, 1, '0');
    if (spec.align == '<') spec.fill = " ";
    return padded(meter_, spec, sign_of(number < 0, spec.sign), digits, spec.align ? spec.align : zeros ? '=' : '>');
  }

  Meter& meter_;
  std::string_view format_;
  const Value& arguments_;
  std::string out_;
  std::size_t at_ = 0, used_ = 0;
  bool keyed_ = false;
};

}  // namespace

std::string format_percent(Meter& meter, std::string_view format, const Value& arguments) {
  return PercentFormat(meter, format, arguments).run();
}

std::string format_spec(Meter& meter, const Value& value, std::string_view specification) {
  if (specification.empty()) return to_text(meter, value);
  if (value.is_number() && !(value.is(Kind::boolean) && specification.find_first_of("dxob") == std::string_view::npos))
    return format_number(meter, value, parse_specification(specification));
  if (!value.is_string() && !value.is(Kind::boolean))
    throw TemplateError(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
  const Specification spec = parse_specification(specification);
  if (spec.type != 0 && spec.type != 's')
    throw TemplateError(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value)));
  std::string text = to_text(meter, value);
  if (spec.precision >= 0) text.resize(byte_of(text, static_cast<std::size_t>(spec.precision)));
  return padded(meter, spec, "", std::move(text), spec.align ? spec.align : '<');
}

}  // namespace heddle::jinja
