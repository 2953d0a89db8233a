#include "text/chat_template/text.h"

#include <fmt/format.h>
#include <unicode/ucasemap.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace heddle::jinja {
namespace {

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

char ascii_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}
char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

using CaseFunction = std::int32_t (*)(const UCaseMap*, char*, std::int32_t, const char*, std::int32_t, UErrorCode*);

std::string map_case(CaseFunction map, std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  UCaseMap* rules = ucasemap_open("", 0, &status);
  if (U_FAILURE(status)) throw_error<Failure>("ICU: {}", u_errorName(status));
  // A code point maps to at most three, each of at most as many bytes.
  std::string result(text.size() * 3 + 16, '\0');
  const std::int32_t size = map(rules, result.data(), static_cast<std::int32_t>(result.size()), text.data(),
                                static_cast<std::int32_t>(text.size()), &status);
  ucasemap_close(rules);
  if (U_FAILURE(status)) throw_error<Failure>("ICU: {}", u_errorName(status));
  result.resize(static_cast<std::size_t>(size));
  return result;
}

std::int32_t title_one(const UCaseMap* rules, char* to, std::int32_t capacity, const char* from, std::int32_t size,
                       UErrorCode* status) {
  return ucasemap_utf8ToTitle(const_cast<UCaseMap*>(rules), to, capacity, from, size, status);
}

template <class Function>
void for_each_code_point(std::string_view text, Function function) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = code_point_size(text, at);
    function(code_point(text, at), text.substr(at, size));
    at += size;
  }
}

bool cased(char32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED);
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (u_charType(static_cast<UChar32>(c))) {
    case U_UNASSIGNED:
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_PRIVATE_USE_CHAR:
    case U_SURROGATE:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
    case U_SPACE_SEPARATOR:
      return false;
    default:
      return true;
  }
}

bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// Whether all cased code points are in `what`, and there is at least one.
bool all_cased(std::string_view text, CharClass what) {
  bool any = false, good = true;
  for_each_code_point(text, [&](char32_t c, std::string_view) {
    const auto point = static_cast<UChar32>(c);
    const bool is_upper = u_hasBinaryProperty(point, UCHAR_UPPERCASE),
               is_lower = u_hasBinaryProperty(point, UCHAR_LOWERCASE);
    const bool is_title = u_charType(point) == U_TITLECASE_LETTER;
    if (what == CharClass::lower ? is_upper || is_title : is_lower || is_title) good = false;
    if (what == CharClass::lower ? is_lower : is_upper) any = true;
  });
  return any && good;
}

bool is_title(std::string_view text) {
  bool any = false, good = true, after_cased = false;
  for_each_code_point(text, [&](char32_t c, std::string_view) {
    const auto point = static_cast<UChar32>(c);
    if (u_hasBinaryProperty(point, UCHAR_UPPERCASE) || u_charType(point) == U_TITLECASE_LETTER) {
      if (after_cased) good = false;
      after_cased = any = true;
    } else if (u_hasBinaryProperty(point, UCHAR_LOWERCASE)) {
      if (!after_cased) good = false;
      after_cased = any = true;
    } else {
      after_cased = false;
    }
  });
  return any && good;
}

std::string titled(std::string_view one) {
  if (is_ascii(one)) return std::string(1, ascii_upper(one[0]));
  return map_case(title_one, one);
}

}  // namespace

char32_t code_point(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  switch (code_point_size(text, at)) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

void append_code_point(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::size_t byte_of(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += code_point_size(text, at);
  return at;
}

bool valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead >= 0x80 && (lead < 0xC2 || lead > 0xF4)) return false;
    const std::size_t size = code_point_size(text, at);
    if (at + size > text.size()) return false;
    for (std::size_t i = 1; i < size; ++i)
      if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return false;
    const char32_t c = code_point(text, at);
    constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < kLeast[size] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
    at += size;
  }
  return true;
}

bool is_space(char32_t c) {
  return (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= ' ') || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_space(std::string_view text, std::size_t begin, std::size_t end) {
  for (; begin < end; begin += code_point_size(text, begin))
    if (!is_space(code_point(text, begin))) return false;
  return true;
}

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_XID_CONTINUE);
}

std::string_view strip(std::string_view text, std::optional<std::string_view> chars, Side side) {
  const auto goes = [&](std::size_t at, std::size_t size) {
    if (!chars) return is_space(code_point(text, at));
    const std::string_view one = text.substr(at, size);
    for (std::size_t i = 0; i < chars->size(); i += code_point_size(*chars, i))
      if (chars->substr(i, code_point_size(*chars, i)) == one) return true;
    return false;
  };
  std::size_t begin = 0, end = text.size();
  if (side != Side::right)
    while (begin < end && goes(begin, code_point_size(text, begin))) begin += code_point_size(text, begin);
  if (side != Side::left) {
    while (end > begin) {
      std::size_t last = end - 1;
      while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      if (!goes(last, end - last)) break;
      end = last;
    }
  }
  return text.substr(begin, end - begin);
}

std::string upper(std::string_view text) {
  if (!is_ascii(text)) return map_case(ucasemap_utf8ToUpper, text);
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), ascii_upper);
  return result;
}

std::string lower(std::string_view text) {
  if (!is_ascii(text)) return map_case(ucasemap_utf8ToLower, text);
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), ascii_lower);
  return result;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const std::size_t first = code_point_size(text, 0);
  // The rest is mapped together with the first, since a final sigma depends on what precedes it; then the first is
  // replaced.
  const std::string all = lower(text);
  return titled(text.substr(0, first)) + all.substr(lower(text.substr(0, first)).size());
}

std::string title(std::string_view text) {
  std::string result;
  bool after_cased = false;
  for_each_code_point(text, [&](char32_t c, std::string_view one) {
    result += after_cased ? lower(one) : titled(one);
    after_cased = cased(c);
  });
  return result;
}

std::string title_words(std::string_view text) {
  const auto separates = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const bool gap = separates(code_point(text, at));
    std::size_t end = at;
    while (end < text.size() && separates(code_point(text, end)) == gap) end += code_point_size(text, end);
    const std::size_t first = code_point_size(text, at);
    result += upper(text.substr(at, first));
    result += lower(text.substr(at + first, end - at - first));
    at = end;
  }
  return result;
}

std::string swap_case(std::string_view text) {
  std::string result;
  for_each_code_point(text, [&](char32_t c, std::string_view one) {
    const auto point = static_cast<UChar32>(c);
    result += u_hasBinaryProperty(point, UCHAR_UPPERCASE)   ? lower(one)
              : u_hasBinaryProperty(point, UCHAR_LOWERCASE) ? upper(one)
                                                            : std::string(one);
  });
  return result;
}

namespace {

// Not for lower, upper, title.
bool in_class(char32_t c, CharClass what) {
  const auto point = static_cast<UChar32>(c);
  const auto numeric_type = [&] { return u_getIntPropertyValue(point, UCHAR_NUMERIC_TYPE); };
  switch (what) {
    case CharClass::alpha:
      return u_isalpha(point);
    case CharClass::decimal:
      return numeric_type() == U_NT_DECIMAL;
    case CharClass::digit:
      return numeric_type() == U_NT_DECIMAL || numeric_type() == U_NT_DIGIT;
    case CharClass::numeric:
      return numeric_type() != U_NT_NONE;
    case CharClass::alnum:
      return u_isalpha(point) || numeric_type() != U_NT_NONE;
    case CharClass::space:
      return is_space(c);
    case CharClass::ascii:
      return c < 0x80;
    case CharClass::printable:
      return is_printable(c);
    case CharClass::identifier:
      return is_word(c);
    default:
      return false;
  }
}

}  // namespace

bool is_all(std::string_view text, CharClass what) {
  if (what == CharClass::lower || what == CharClass::upper) return all_cased(text, what);
  if (what == CharClass::title) return is_title(text);
  if (text.empty()) return what == CharClass::ascii || what == CharClass::printable;
  if (what == CharClass::identifier && u_isdigit(static_cast<UChar32>(code_point(text, 0)))) return false;
  bool all = true;
  for_each_code_point(text, [&](char32_t c, std::string_view) { all = all && in_class(c, what); });
  return all;
}

std::vector<std::string_view> split(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  for (;;) {
    text = strip(text, {}, Side::left);
    if (text.empty()) return parts;
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(text);  // including the white space after it
      return parts;
    }
    std::size_t end = 0;
    while (end < text.size() && !is_space(code_point(text, end))) end += code_point_size(text, end);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, std::int64_t most) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end =
        most >= 0 && static_cast<std::int64_t>(parts.size()) == most ? std::string_view::npos : text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + separator.size());
  }
}

std::vector<std::string_view> split_right(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  for (;;) {
    text = strip(text, {}, Side::right);
    if (text.empty()) break;
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    std::size_t begin = text.size();
    while (begin > 0) {
      std::size_t last = begin - 1;
      while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      if (is_space(code_point(text, last))) break;
      begin = last;
    }
    parts.push_back(text.substr(begin));
    text = text.substr(0, begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, std::int64_t most) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at =
        most >= 0 && static_cast<std::int64_t>(parts.size()) == most ? std::string_view::npos : text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, LineEnds ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = code_point(text, at);
    std::size_t next = at + code_point_size(text, at);
    if (is_line_end(c)) {
      if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (ends == LineEnds::keep ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::int64_t count(std::string_view text, std::string_view part) {
  std::int64_t result = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++result;
  return result;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t most) {
  std::string result;
  std::size_t at = 0;
  if (from.empty()) {  // before every code point, and at the end
    for (; most != 0; --most) {
      result += to;
      if (at == text.size()) return result;
      const std::size_t size = code_point_size(text, at);
      result += text.substr(at, size);
      at += size;
    }
  } else {
    for (; most != 0; --most) {
      const std::size_t found = text.find(from, at);
      if (found == std::string_view::npos) break;
      result += text.substr(at, found - at);
      result += to;
      at = found + from.size();
    }
  }
  return result += text.substr(at);
}

std::string in_quotes(std::string_view text) {
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  std::string result(1, quote);
  for_each_code_point(text, [&](char32_t c, std::string_view one) {
    const auto number = static_cast<std::uint32_t>(c);
    if (c == static_cast<char32_t>(quote) || c == '\\')
      (result += '\\') += one;
    else if (c == '\n')
      result += "\\n";
    else if (c == '\r')
      result += "\\r";
    else if (c == '\t')
      result += "\\t";
    else if (is_printable(c))
      result += one;
    else if (number < 0x100)
      result += fmt::format("\\x{:02x}", number);
    else if (number < 0x10000)
      result += fmt::format("\\u{:04x}", number);
    else
      result += fmt::format("\\U{:08x}", number);
  });
  return result += quote;
}

std::string escape_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&#34;";
    else if (c == '\'')
      result += "&#39;";
    else
      result += c;
  }
  return result;
}

std::optional<double> parse_real(std::string_view text) {
  std::string number(strip(text));
  for (std::size_t i = 0; i < number.size(); ++i) {
    if (number[i] != '_') continue;
    const auto digit = [&](std::size_t at) { return at < number.size() && number[at] >= '0' && number[at] <= '9'; };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
  }
  std::erase(number, '_');
  const bool negative = number.starts_with('-');
  if (negative || number.starts_with('+')) number.erase(0, 1);
  if (number.empty() || number[0] == '-' || number[0] == '+') return std::nullopt;
  const std::string name = lower(number);
  double value = 0;
  if (name == "inf" || name == "infinity") {
    value = HUGE_VAL;
  } else if (name == "nan") {
    value = std::nan("");
  } else {
    if (!(number[0] == '.' || (number[0] >= '0' && number[0] <= '9')) ||
        number.find_first_of("xXpP") != std::string::npos)
      return std::nullopt;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (end != number.data() + number.size()) return std::nullopt;
    if (error == std::errc::result_out_of_range) value = std::strtod(number.c_str(), nullptr);
  }
  return negative ? -value : value;
}

}  // namespace heddle::jinja
