#include "text/tokenizer/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "text/tokenizer/unicode_sets.h"

namespace heddle {
namespace {

// Means nearly the same in ICU.
constexpr std::string_view kNearWord = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// What the two read differently, and what is written for ICU:
//   a{1,3}+   Ruby repeats the group greedily, Perl makes it possessive; a{3}? is also an optional group in Ruby
//   {,3}, {   an interval from 0; a brace that begins no interval is literal
//   \h, \H    hexadecimal digits, not horizontal space
//   \p{L}     and the other sets of unicode_sets.h: their characters, whatever ICU's version
//   \w, \W    without the joiners U+200C and U+200D
//   \b, \B    by that \w; ICU's attaches marks to the preceding character
//   [:punct:] symbols as well
//   \p{^L}    \P{L}
//   (?m)      the dot matches newlines, which Perl calls (?s)
//   \v, \Z    only the vertical tab; the end, or before a newline that ends the text
//   \Q, [\R]  and other letters without a meaning in Ruby, or in a class, are literal
class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  std::string run() {
    while (!rest_.empty()) step();
    return std::move(out_);
  }

 private:
  void step() {
    const char c = rest_.front();
    if (c == '\\') {
      atom_ = out_.size();
      if (anchor_escape()) return;
      escape(Place::outside);
    } else if (c == '.' && dot_matches_newline_) {
      atom_ = out_.size();
      replace(1, R"([\s\S])");  // ICU's own would treat \r\n as one character
    } else if (c == '[') {
      atom_ = out_.size();
      character_class();
    } else if (c == '(') {
      groups_.push_back({out_.size(), dot_matches_newline_});
      open_group();
    } else if (c == ')') {
      close_group();
    } else if (c == '{') {
      brace();
    } else if (c == '}') {
      atom_ = out_.size();
      out_ += "\\}";
      rest_.remove_prefix(1);
    } else if (c == '*' || c == '+' || c == '?' || c == '|') {
      copy(1);
    } else {
      atom_ = out_.size();
      copy_char();
    }
  }

  void copy(std::size_t count) {
    count = std::min(count, rest_.size());
    out_ += rest_.substr(0, count);
    rest_.remove_prefix(count);
  }

  // One character with its continuation bytes.
  void copy_char() {
    std::size_t count = 1;
    while (count < rest_.size() && (static_cast<unsigned char>(rest_[count]) & 0xC0) == 0x80) ++count;
    copy(count);
  }

  void replace(std::size_t count, std::string_view with) {
    out_ += with;
    rest_.remove_prefix(count);
  }

  // The set in ICU's syntax; cached, because a pattern may have it at every byte.
  std::string set(std::string_view near, const icu::UnicodeSet& wanted, bool negated) {
    auto [known, is_new] = sets_.try_emplace(std::pair(std::string(near), wanted.size()));
    if (is_new) known->second = set_for_icu(near, wanted);
    return negated ? fmt::format("[^{}]", known->second) : known->second;
  }

  // \w, \b and \Z outside a class.
  bool anchor_escape() {
    const char c = rest_.size() > 1 ? rest_[1] : '\0';
    if (c == 'Z') {
      replace(2, R"((?=\n?\z))");
      return true;
    }
    if (std::string_view("wWbB").find(c) == std::string_view::npos) return false;
    const std::string word = set(kNearWord, property("word"), c == 'W');
    if (c == 'b') {
      replace(2, fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word));
    } else if (c == 'B') {
      replace(2, fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word));
    } else {
      replace(2, word);
    }
    return true;
  }

  // [:name:] within a class.
  void posix_class() {
    const std::string_view whole = rest_.substr(0, rest_.find(":]") + 2);
    std::string_view name = whole.substr(2, whole.size() - 4);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    if (name == "punct") {
      icu::UnicodeSet both;
      both.addAll(property("P")).addAll(property("S"));
      return replace(whole.size(), set(R"([\p{P}\p{S}])", both, negated));
    }
    if (name == "word") return replace(whole.size(), set(kNearWord, word_characters(), negated));
    if (const auto* known = find_property(name))
      return replace(whole.size(), set(fmt::format("[:{}:]", name), *known, negated));
    copy(whole.size());
  }

  // \p{name} and \P{name}; false for a property that only ICU knows.
  bool property_escape() {
    bool negated = rest_[1] == 'P';
    std::string_view name = rest_.substr(3, rest_.find('}') - 3);
    const std::size_t size = name.size() + 4;
    if (rest_.size() < size) return false;
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const auto* known = find_property(name);
    if (known == nullptr) return false;
    replace(size, set(fmt::format("\\p{{{}}}", name), *known, negated));
    return true;
  }

  enum class Place { outside, in_class };

  // A letter after a backslash that has no meaning there is itself.
  static bool is_plain_letter(char c, Place place) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const std::string_view meanings =
        place == Place::outside ? "ntrfaevdDsSwWhHpPxucCMNoAzZGbBkRXgKOyY" : "ntrfaevdDsSwWhHpPxucCMNob";
    return letter && meanings.find(c) == std::string_view::npos;
  }

  // Inside and outside character classes, which may be nested.
  void escape(Place place) {
    const char c = rest_.size() > 1 ? rest_[1] : '\0';
    if (is_plain_letter(c, place)) return replace(2, rest_.substr(1, 1));
    if (std::string_view("CMogKOyY").find(c) != std::string_view::npos) throw UnsupportedEscape{{'\\', c}};
    switch (c) {
      case 'v':
        return replace(2, "\\x0B");
      case 'b':
        return replace(2, "\\x08");
      case 'h':
        return replace(2, "[0-9a-fA-F]");
      case 'H':
        return replace(2, "[^0-9a-fA-F]");
      case 'w':
      case 'W':
        return replace(2, set(kNearWord, word_characters(), c == 'W'));
      case 'd':
      case 'D':
        return replace(2, set("\\p{Nd}", property("Nd"), c == 'D'));
      case 's':
      case 'S':
        return replace(2, set("\\p{White_Space}", property("space"), c == 'S'));
      default:
        break;
    }
    if ((c == 'p' || c == 'P') && rest_.substr(2).starts_with('{') && property_escape()) return;
    if ((c == 'p' || c == 'P') && rest_.substr(2).starts_with("{^")) {
      replace(4, c == 'p' ? "\\P{" : "\\p{");
      return copy(std::min(rest_.size(), rest_.find('}')) + 1);
    }
    copy(1);
    copy_char();
    const bool takes_braces = c == 'p' || c == 'P' || c == 'x' || c == 'N';
    if (takes_braces && rest_.starts_with('{')) return copy(std::min(rest_.size(), rest_.find('}')) + 1);
    for (int digits = c == 'u' ? 4 : c == 'x' ? 2 : 0; digits > 0 && !rest_.empty() && is_hex_digit(rest_[0]); --digits)
      copy(1);
  }

  void character_class() {
    int depth = 0;
    do {
      if (rest_.front() == '\\') {
        escape(Place::in_class);
      } else if (rest_.starts_with("[:") && depth > 0 && rest_.substr(0, 16).find(":]") != std::string_view::npos) {
        posix_class();
      } else if (rest_.front() == '[') {
        ++depth;
        copy(rest_.starts_with("[^") ? 2 : 1);
        if (rest_.starts_with(']')) replace(1, "\\]");  // a bracket in first position is literal
      } else {
        if (rest_.front() == ']') --depth;
        copy_char();
      }
    } while (depth > 0 && !rest_.empty());
  }

  void open_group() {
    if (rest_.starts_with("(?#")) return copy(std::min(rest_.size(), rest_.find(')')));
    copy(1);
    if (!rest_.starts_with('?')) return;
    copy(1);
    for (bool on = true; !rest_.empty() && std::string_view("imx-").find(rest_.front()) != std::string_view::npos;) {
      if (rest_.front() == '-') on = false;
      if (rest_.front() == 'm') dot_matches_newline_ = on;
      replace(1, rest_.front() == 'm' ? std::string_view("s") : rest_.substr(0, 1));
    }
    if (rest_.starts_with(')')) {  // flags for the rest of the enclosing group
      groups_.pop_back();
      return copy(1);
    }
    // The rest of a group's head, so that its ':', '<name>' or '=' is not read as an atom.
    if (rest_.starts_with('<') && !rest_.starts_with("<=") && !rest_.starts_with("<!")) {
      copy(std::min(rest_.size(), rest_.find('>')) + 1);
    } else {
      copy(rest_.starts_with('<') ? 2 : 1);
    }
  }

  void close_group() {
    copy(1);
    atom_ = out_.size();
    if (groups_.empty()) return;
    atom_ = groups_.back().begin;
    dot_matches_newline_ = groups_.back().dot_matched_newline;
    groups_.pop_back();
  }

  void brace() {
    std::size_t end = 1;
    while (end < rest_.size() && is_digit(rest_[end])) ++end;
    const bool has_low = end > 1;
    bool has_high = false;
    bool has_comma = false;
    if (end < rest_.size() && rest_[end] == ',') {
      has_comma = true;
      const std::size_t first = ++end;
      while (end < rest_.size() && is_digit(rest_[end])) ++end;
      has_high = end > first;
    }
    if (end >= rest_.size() || rest_[end] != '}' || (!has_low && !has_high)) {
      atom_ = out_.size();
      return replace(1, "\\{");
    }
    const std::string_view interval = rest_.substr(1, end);  // without the opening brace
    out_ += has_low ? "{" : "{0";
    replace(end + 1, interval);
    // A quantifier after the interval repeats it; in Perl it would modify it.
    const bool repeats = rest_.starts_with('+') || (rest_.starts_with('?') && !has_comma);
    if (!repeats) return;
    out_.insert(atom_, "(?:");
    out_ += ")";
  }

  struct Group {
    std::size_t begin;         // in out_
    bool dot_matched_newline;  // before it
  };

  std::string_view rest_;
  std::map<std::pair<std::string, std::int32_t>, std::string> sets_;
  std::string out_;
  std::size_t atom_ = 0;       // where in out_ the operand of a next quantifier begins
  std::vector<Group> groups_;  // the open ones
  bool dot_matches_newline_ = false;
};

}  // namespace

std::string regex_for_icu(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace heddle
