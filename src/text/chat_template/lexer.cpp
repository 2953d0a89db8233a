#include "text/chat_template/lexer.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/printable.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

using Type = Token::Type;

// "\r\n" and "\r" become "\n"; one line end at the end of the text is removed.
std::string with_plain_line_ends(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view where) : where_(where), text_(with_plain_line_ends(source)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag();
      if (tag == std::string::npos) {
        data(text_.substr(at_));
        break;
      }
      const char kind = text_[tag + 1];
      std::size_t inside = tag + 2;
      char sign = 0;
      if (inside < text_.size() && (text_[inside] == '-' || text_[inside] == '+')) sign = text_[inside++];
      const std::size_t raw = kind == '%' ? after_raw(inside) : std::string::npos;
      text_before(tag, sign, kind == '{');
      at_ = inside;
      if (raw != std::string::npos)
        raw_block(raw);
      else if (kind == '#')
        comment();
      else
        tag_body(kind == '%');
    }
    push(Type::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view message) const {
    throw_error<InputError>("{}, line {}: {}", where_, line_, printable(message, kMaxMessageBytes));
  }

  Token& push(Type type, std::string text = {}) {
    return tokens_.emplace_back(Token{.type = type, .text = std::move(text), .line = line_});
  }

  // Moves to `place` and counts the lines in between.
  void advance(std::size_t place) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
    at_ = place;
  }

  std::size_t next_tag() const {
    for (std::size_t i = text_.find('{', at_); i != std::string::npos; i = text_.find('{', i + 1))
      if (i + 1 < text_.size() && (text_[i + 1] == '%' || text_[i + 1] == '{' || text_[i + 1] == '#')) return i;
    return std::string::npos;
  }

  std::size_t skip_space(std::size_t at) const {
    while (at < text_.size() && is_space(code_point(text_, at))) at += code_point_size(text_, at);
    return at;
  }

  bool stands(std::size_t at, std::string_view what) const {
    return std::string_view(text_).substr(at).starts_with(what);
  }

  // The position after "raw %}", if that is at `at`.
  std::size_t after_raw(std::size_t at) const {
    at = skip_space(at);
    if (!stands(at, "raw")) return std::string::npos;
    at = skip_space(at + 3);
    if (stands(at, "-%}")) return skip_space(at + 3);
    return stands(at, "%}") ? at + 2 : std::string::npos;
  }

  void data(std::string_view text) {
    if (!text.empty()) push(Type::data, std::string(text));
  }

  // Emits the text up to the tag at `tag`, without trimmed white space: all of it before "-"; and white space between
  // the line's beginning and a block tag, unless "+" keeps it.
  void text_before(std::size_t tag, char sign, bool variable) {
    const std::string_view text = std::string_view(text_).substr(at_, tag - at_);
    std::string_view kept = text;
    if (sign == '-') {
      kept = strip(text, {}, Side::right);
    } else if (sign != '+' && !variable) {
      const std::size_t line_end = text.rfind('\n');
      const std::size_t begin = line_end == std::string_view::npos ? 0 : line_end + 1;
      if ((begin > 0 || line_starting_) && is_space(text, begin, text.size())) kept = text.substr(0, begin);
    }
    data(kept);
    advance(tag);
  }

  // If the end of a tag is here, moves past it and past the white space that it trims.
  bool tag_end(std::string_view end, bool block) {
    std::size_t place = at_;
    if (stands(place, "-") && stands(place + 1, end)) {
      place = skip_space(place + 1 + end.size());
    } else if (block && stands(place, "+") && stands(place + 1, end)) {
      place += 1 + end.size();
    } else if (stands(place, end)) {
      place += end.size();
      if (block && stands(place, "\n")) ++place;
    } else {
      return false;
    }
    line_starting_ = text_[place - 1] == '\n';
    advance(place);
    return true;
  }

  void comment() {
    const int line = line_;
    std::size_t place = text_.find("#}", at_);
    if (place == std::string::npos) {
      if (at_ == text_.size()) return;  // as in jinja2
      line_ = line;
      fail("Missing end of comment tag");
    }
    if (place > at_ && (text_[place - 1] == '-' || text_[place - 1] == '+')) --place;
    advance(place);
    tag_end("#}", true);
  }

  void raw_block(std::size_t begin) {
    line_starting_ = text_[begin - 1] == '\n';
    advance(begin);
    for (std::size_t tag = text_.find("{%", at_); tag != std::string::npos; tag = text_.find("{%", tag + 1)) {
      std::size_t place = tag + 2;
      char sign = 0;
      if (stands(place, "-") || stands(place, "+")) sign = text_[place++];
      place = skip_space(place);
      if (!stands(place, "endraw")) continue;
      place = skip_space(place + 6);
      if (!stands(place, "%}") && !stands(place, "-%}") && !stands(place, "+%}")) continue;
      text_before(tag, sign, false);
      advance(place);
      tag_end("%}", true);
      return;
    }
    if (at_ < text_.size()) fail("Missing end of raw directive");
  }

  void tag_body(bool block) {
    push(block ? Type::block_begin : Type::variable_begin);
    open_.clear();
    while (at_ < text_.size()) {
      const int line = line_;
      if (open_.empty() && tag_end(block ? "%}" : "}}", block)) {
        push(block ? Type::block_end : Type::variable_end).line = line;
        return;
      }
      const char c = text_[at_];
      if (is_space(code_point(text_, at_)))
        advance(skip_space(at_));
      else if (is_digit(c))
        number();
      else if (c == '\'' || c == '"')
        string(c);
      else if (is_word(code_point(text_, at_)))
        name();
      else
        symbol();
    }
  }

  void name() {
    std::size_t end = at_;
    while (end < text_.size() && is_word(code_point(text_, end))) end += code_point_size(text_, end);
    const auto first = static_cast<UChar32>(code_point(text_, at_));
    if (first >= 0x80 && !u_hasBinaryProperty(first, UCHAR_XID_START)) fail("Invalid character in identifier");
    push(Type::name, text_.substr(at_, end - at_));
    at_ = end;
  }

  // The end of a run of digits at `at`, with single underscores between them.
  template <class IsDigit>
  std::size_t digits(std::size_t at, IsDigit is_one) const {
    while (at < text_.size() &&
           (is_one(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() && is_one(text_[at + 1]))))
      ++at;
    return at;
  }

  void number() {
    std::size_t end = digits(at_, is_digit);
    bool is_real = false;
    if (at_ == 0 || text_[at_ - 1] != '.') {  // in a.1.2 the numbers are subscripts
      if (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
        end = digits(end + 1, is_digit);
        is_real = true;
      }
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        const std::size_t sign = end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 1 : 0;
        if (end + 1 + sign < text_.size() && is_digit(text_[end + 1 + sign])) {
          end = digits(end + 1 + sign, is_digit);
          is_real = true;
        }
      }
    }
    if (is_real) {
      push(Type::real).real = std::strtod(without_underscores(at_, end).c_str(), nullptr);
      at_ = end;
    } else {
      integer();
    }
  }

  std::string without_underscores(std::size_t begin, std::size_t end) const {
    std::string text = text_.substr(begin, end - begin);
    std::erase(text, '_');
    return text;
  }

  void integer() {
    std::size_t begin = at_, end = at_;
    int base = 10;
    const auto in_base = [&](char c) {
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      return digit < base;
    };
    const char marker = text_[at_] == '0' && at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    base = marker == 'x' || marker == 'X'   ? 16
           : marker == 'o' || marker == 'O' ? 8
           : marker == 'b' || marker == 'B' ? 2
                                            : 10;
    if (base != 10) end = digits(begin + 2, in_base);
    if (end > begin + 2 && base != 10) {
      begin += 2;
    } else {
      base = text_[at_] == '0' ? 1 : 10;  // after a leading zero a number continues with zeros only
      end = digits(at_, in_base);
      base = 10;
    }
    const std::string text = without_underscores(begin, end);
    std::int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc())
      fail("an integer beyond 64 bits (a limit of this interpreter)");
    push(Type::integer).integer = value;
    at_ = end;
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail(fmt::format("unexpected char {}", in_quotes(std::string(1, quote))));
    push(Type::string, unescaped(std::string_view(text_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
  }

  std::string unescaped(std::string_view text) const {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] != '\\') {
        result += text[at++];
        continue;
      }
      const char c = text[at + 1];  // a backslash is never last
      at += 2;
      constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
      if (const std::size_t letter = kLetters.find(c); letter != std::string_view::npos) {
        result += kMeanings[letter];
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        std::uint32_t point = 0;
        --at;
        for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i)
          point = point * 8 + static_cast<std::uint32_t>(text[at++] - '0');
        append_code_point(result, point);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        at = hex_escape(text, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, result);
      } else if (c == 'N') {
        fail("characters by name are not supported in strings");
      } else {
        result += '\\';
        --at;
      }
    }
    return result;
  }

  std::size_t hex_escape(std::string_view text, std::size_t at, std::size_t size, std::string& result) const {
    std::uint32_t point = 0;
    const std::string_view digits = text.substr(at, size);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), point, 16);
    if (digits.size() != size || error != std::errc() || end != digits.data() + size)
      fail("truncated escape in a string");
    if (point > 0x10FFFF) fail("illegal Unicode character in a string");
    if (point >= 0xD800 && point < 0xE000) fail("half of a surrogate pair in a string");
    append_code_point(result, point);
    return at + size;
  }

  void symbol() {
    static constexpr std::string_view kSymbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!stands(at_, symbol)) continue;
      if (symbol == "{" || symbol == "(" || symbol == "[") {
        open_ += symbol == "{" ? '}' : symbol == "(" ? ')' : ']';
      } else if (symbol == "}" || symbol == ")" || symbol == "]") {
        if (open_.empty()) fail(fmt::format("unexpected '{}'", symbol));
        const char expected = open_.back();
        open_.pop_back();
        if (expected != symbol[0]) fail(fmt::format("unexpected '{}', expected '{}'", symbol, expected));
      }
      push(Type::op, std::string(symbol));
      at_ += symbol.size();
      return;
    }
    fail(fmt::format("unexpected char {} at {}",
                     in_quotes(std::string_view(text_).substr(at_, code_point_size(text_, at_))),
                     count_code_points(std::string_view(text_).substr(0, at_))));
  }

  std::string_view where_;
  std::string text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what came before ended with a line end
  std::string open_;           // the brackets still open in this tag
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view where) {
  return Lexer(source, where).run();
}

}  // namespace heddle::jinja
