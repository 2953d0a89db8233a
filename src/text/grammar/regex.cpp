#include "text/grammar/regex.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "text/grammar/automaton.h"
#include "text/tokenizer/utf8.h"

namespace heddle::grammar {
namespace {

using Node = std::shared_ptr<const RegexNode>;
using Kind = RegexNode::Kind;

constexpr int kMaxGroups = 100;  // nested

CharacterSet digits() {
  return {{'0', '9'}};
}

CharacterSet word() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}

CharacterSet spaces() {
  return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

CharacterSet line_ends() {
  return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
}

std::optional<int> hex_digit(char32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<int>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<int>(c - 'A') + 10;
  return std::nullopt;
}

Node node(RegexNode node) {
  return std::make_shared<const RegexNode>(std::move(node));
}

class RegexParser {
 public:
  RegexParser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Node parse() {
    if (const auto at = find_invalid_utf8(text_))
      throw_error<InputError>("{}: the expression is not valid UTF-8 at byte {}", where_, *at);
    Node whole = choice(0);
    if (!at_end()) fail("a \")\" without a \"(\"");
    return whole;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw_error<InputError>("{}: at byte {} of the expression: {}", where_, at_, what);
  }
  bool at_end() const { return at_ == text_.size(); }
  bool at(std::string_view next) const { return text_.substr(at_).starts_with(next); }
  bool take(std::string_view next) {
    if (!at(next)) return false;
    at_ += next.size();
    return true;
  }
  char32_t character() {
    const Utf8Char next = first_char(text_.substr(at_));
    at_ += next.length;
    return next.code_point;
  }

  Node choice(int depth) {
    if (depth > kMaxGroups) fail(fmt::format("more than {} nested groups", kMaxGroups));
    RegexNode result{.kind = Kind::choice};
    do result.parts.push_back(sequence(depth));
    while (take("|"));
    return result.parts.size() == 1 ? result.parts.front() : node(std::move(result));
  }

  Node sequence(int depth) {
    RegexNode result{.kind = Kind::sequence};
    while (!at_end() && !at("|") && !at(")")) result.parts.push_back(repeated(atom(depth)));
    if (result.parts.empty()) return node({});
    return result.parts.size() == 1 ? result.parts.front() : node(std::move(result));
  }

  Node repeated(Node one) {
    for (bool again = false;; again = true) {
      const auto counts = repetition();
      if (!counts) return one;
      if (again) fail("a repetition of a repetition; put the first one into a group");
      if (one->kind == Kind::text_start || one->kind == Kind::text_end) fail("^ and $ cannot be repeated");
      if (take("+")) fail("possessive repetitions are not supported");
      take("?");
      one = node({.kind = Kind::repeat, .parts = {one}, .least = counts->first, .most = counts->second});
    }
  }

  std::optional<std::pair<int, int>> repetition() {
    if (take("*")) return std::pair(0, kUnbounded);
    if (take("+")) return std::pair(1, kUnbounded);
    if (take("?")) return std::pair(0, 1);
    if (!at("{")) return std::nullopt;
    const std::size_t begin = at_++;
    const auto least = count();
    auto most = least;
    if (least && take(",")) {
      most = count();
      if (!most && at("}")) most = kUnbounded;
    }
    if (!least || !most || !take("}")) {
      at_ = begin;
      fail("expected a repetition {m}, {m,} or {m,n}; write \\{ for a brace");
    }
    if (*most != kUnbounded && *most < *least) fail("a repetition {m,n} whose n is less than m");
    return std::pair(*least, *most);
  }

  std::optional<int> count() {
    int value = 0;
    const std::size_t begin = at_;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = 10 * value + (text_[at_] - '0');
      if (value > kMaxRepetitions) fail(fmt::format("more than {} repetitions", kMaxRepetitions));
    }
    return at_ > begin ? std::optional(value) : std::nullopt;
  }

  Node atom(int depth) {
    if (take("^")) return node({.kind = Kind::text_start});
    if (take("$")) return node({.kind = Kind::text_end});
    if (take(".")) return set(~line_ends());
    if (take("(")) return group(depth);
    if (take("[")) return set(class_body());
    for (const std::string_view sign : {"*", "+", "?", "{"})
      if (at(sign)) fail("a repetition without anything to repeat");
    if (at("]") || at("}")) fail("an unescaped ] or }");
    if (take("\\")) return escape();
    const char32_t literal = character();
    return set({{literal, literal}});
  }

  static Node set(CharacterSet characters) {
    return node({.kind = Kind::characters, .characters = std::move(characters)});
  }

  Node group(int depth) {
    if (take("?")) {
      if (!take(":")) {
        for (const std::string_view look : {"=", "!", "<=", "<!"})
          if (at(look)) fail("look-ahead and look-behind are not supported");
        if (!take("P<") && !take("<")) fail("this kind of group is not supported; use (...) or (?:...)");
        while (!at_end() && !at(">")) character();
        if (!take(">")) fail("a group's name without its >");
      }
    }
    Node inside = choice(depth + 1);
    if (!take(")")) fail("a \"(\" without its \")\"");
    return inside;
  }

  std::optional<CharacterSet> class_escape() {
    if (take("d")) return digits();
    if (take("D")) return ~digits();
    if (take("w")) return word();
    if (take("W")) return ~word();
    if (take("s")) return spaces();
    if (take("S")) return ~spaces();
    return std::nullopt;
  }

  Node escape() {
    if (at_end()) fail("a backslash at the end");
    if (auto characters = class_escape()) return set(std::move(*characters));
    if (at("b") || at("B")) fail("\\b and \\B are not supported");
    if (text_[at_] >= '1' && text_[at_] <= '9') fail("backreferences are not supported");
    if (at("k")) fail("backreferences are not supported");
    const char32_t literal = character_escape();
    return set({{literal, literal}});
  }

  // Behind a backslash.
  char32_t character_escape() {
    constexpr std::pair<std::string_view, char32_t> kNamed[] = {
        {"t", '\t'}, {"n", '\n'}, {"v", '\v'}, {"f", '\f'}, {"r", '\r'}};
    for (const auto& [name, value] : kNamed)
      if (take(name)) return value;
    if (take("0")) {
      if (!at_end() && text_[at_] >= '0' && text_[at_] <= '9') fail("octal escapes are not supported");
      return 0;
    }
    if (take("x")) return hex(2);
    if (take("u{")) {
      char32_t value = 0;
      do value = 16 * value + hex(1);
      while (!at("}") && value <= kLastCharacter);
      if (!take("}") || value > kLastCharacter) fail("\\u{...} beyond U+10FFFF");
      return scalar(value);
    }
    if (take("u")) return utf16();
    if (take("c")) {
      if (at_end() || !((text_[at_] >= 'a' && text_[at_] <= 'z') || (text_[at_] >= 'A' && text_[at_] <= 'Z')))
        fail("\\c without a letter");
      return static_cast<char32_t>(text_[at_++]) % 32;
    }
    if (at("p") || at("P")) fail("\\p is not supported; list the characters in a class");
    const char32_t literal = character();
    if (literal == '_' || hex_digit(literal) || (literal >= 'a' && literal <= 'z') ||
        (literal >= 'A' && literal <= 'Z'))
      fail("an unknown escape");
    return literal;
  }

  char32_t scalar(char32_t value) const {
    if (value >= 0xD800 && value <= 0xDFFF) fail("a surrogate that is no part of a pair");
    return value;
  }

  char32_t utf16() {
    const char32_t high = hex(4);
    if (high < 0xD800 || high > 0xDBFF || !take("\\u")) return scalar(high);
    const char32_t low = hex(4);
    if (low < 0xDC00 || low > 0xDFFF) fail("a surrogate that is no part of a pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  char32_t hex(int num_digits) {
    char32_t value = 0;
    for (int i = 0; i < num_digits; ++i) {
      const auto digit = at_end() ? std::nullopt : hex_digit(static_cast<unsigned char>(text_[at_]));
      if (!digit) fail("expected a hexadecimal digit");
      value = 16 * value + static_cast<char32_t>(*digit);
      ++at_;
    }
    return value;
  }

  // One character of a class, or a set like \d.
  CharacterSet class_item(bool& single) {
    single = false;
    if (at_end()) fail("a [ without its ]");
    if (at("[:") || at("[.") || at("[=")) fail("POSIX classes are not supported");
    char32_t literal = 0;
    if (take("\\")) {
      if (at_end()) fail("a backslash at the end");
      if (auto characters = class_escape()) return *characters;
      if (take("b"))
        literal = '\b';
      else if (text_[at_] >= '1' && text_[at_] <= '9')
        fail("octal escapes are not supported");
      else
        literal = take("-") ? U'-' : character_escape();
    } else {
      literal = character();
    }
    single = true;
    return {{literal, literal}};
  }

  CharacterSet class_body() {
    const bool negated = take("^");
    CharacterSet result;
    if (at("]")) fail("an empty class; write \\] for a bracket");
    std::size_t num_items = 0;
    std::vector<CharacterRange> ranges;
    while (!take("]")) {
      bool single = false;
      const CharacterSet first = class_item(single);
      if (!single || !at("-") || at("-]")) {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
      } else {
        take("-");
        bool last_single = false;
        const CharacterSet last = class_item(last_single);
        if (!last_single) fail("a range that ends in a set");
        if (last.empty() || first.empty() || last.ranges()[0].first < first.ranges()[0].first)
          fail("a range whose end lies before its start");
        ranges.push_back({first.ranges()[0].first, last.ranges()[0].first});
      }
      if (++num_items > kMaxItems) fail("a class of too many characters");
    }
    result = CharacterSet(std::move(ranges));
    return negated ? ~result : result;
  }

  static constexpr std::size_t kMaxItems = 4096;
  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
};

}  // namespace

std::shared_ptr<const RegexNode> parse_regex(std::string_view expression, std::string_view where) {
  return RegexParser(expression, where).parse();
}

}  // namespace heddle::grammar
