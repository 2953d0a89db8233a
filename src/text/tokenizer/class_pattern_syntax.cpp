// Parses the part of Ruby's syntax that class_pattern.h can express, and gives up on anything else: a misreading would
// produce wrong tokens, while ICU only takes more time.
#include <algorithm>
#include <string>
#include <utility>

#include "text/tokenizer/class_pattern.h"
#include "text/tokenizer/unicode_sets.h"
#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

using icu::UnicodeSet;
using Look = ClassSequence::Look;

constexpr std::size_t kMaxItems = 64;  // per alternative
constexpr std::size_t kMaxAlternatives = 64;
constexpr std::uint32_t kMaxRepeats = 1000;

struct NotOfThisKind {};

bool is_alpha(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// An ASCII letter in both cases, and the characters that fold to it.
UnicodeSet both_cases(char32_t letter) {
  const auto lower = static_cast<UChar32>(letter | 0x20);
  UnicodeSet set(lower, lower);
  set.add(lower - 0x20);
  if (lower == 's') set.add(0x17F);   // long s
  if (lower == 'k') set.add(0x212A);  // the sign for kelvin
  return set;
}

UnicodeSet complement(UnicodeSet set) {
  set.complement();
  return set;
}

// A sequence under construction.
struct Draft {
  ClassSequence sequence;
  std::string folded;  // for each item its letter if it matches in any case, else a blank
};
using Drafts = std::vector<Draft>;

class Parser {
 public:
  explicit Parser(std::string_view regex) : rest_(regex) {}

  Drafts run() {
    Drafts drafts = alternatives(false, 0);
    if (!rest_.empty()) throw NotOfThisKind();
    return drafts;
  }

 private:
  // Parses up to the end or a closing bracket.
  Drafts alternatives(bool any_case, int depth) {
    if (depth > 8) throw NotOfThisKind();
    Drafts all;
    for (;;) {
      Drafts some = concatenation(any_case, depth);
      all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
      if (all.size() > kMaxAlternatives) throw NotOfThisKind();
      if (!skip("|")) return all;
    }
  }

  Drafts concatenation(bool any_case, int depth) {
    Drafts drafts(1);
    while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
      // Nothing may follow a look-ahead.
      for (const Draft& draft : drafts)
        if (draft.sequence.look != Look::none) throw NotOfThisKind();
      if (rest_[0] != '(') {
        const auto [item, folded] = repeated_class(any_case);
        for (Draft& draft : drafts) {
          draft.sequence.items.push_back(item);
          draft.folded += folded;
          if (draft.sequence.items.size() > kMaxItems) throw NotOfThisKind();
        }
        continue;
      }
      if (rest_.starts_with("(?!") || rest_.starts_with("(?=")) {
        const Look look = rest_[2] == '!' ? Look::not_followed_by : Look::followed_by;
        rest_.remove_prefix(3);
        const UnicodeSet set = plain_class(any_case).first;
        if (!skip(")")) throw NotOfThisKind();
        for (Draft& draft : drafts) {
          draft.sequence.look = look;
          draft.sequence.look_set = set;
        }
        continue;
      }
      drafts = followed_by(drafts, group(any_case, depth));
    }
    return drafts;
  }

  // (?:...), (?i:...) or (...), without a quantifier.
  Drafts group(bool any_case, int depth) {
    if (skip("(?i:")) {
      any_case = true;
    } else if (!skip("(?:")) {
      skip("(");
      if (rest_.starts_with("?")) throw NotOfThisKind();
    }
    Drafts inner = alternatives(any_case, depth + 1);
    if (!skip(")") || (!rest_.empty() && std::string_view("?*+{").find(rest_[0]) != std::string_view::npos))
      throw NotOfThisKind();
    return inner;
  }

  // The alternatives of a group multiply those before it. Backtracking would try all of them before it shortens what
  // precedes the group, so that must have a fixed length.
  static Drafts followed_by(const Drafts& before, const Drafts& group) {
    Drafts all;
    for (const Draft& first : before) {
      for (const auto& item : first.sequence.items)
        if (group.size() > 1 && item.min != item.max) throw NotOfThisKind();
      for (const Draft& second : group) {
        Draft both = first;
        both.sequence.items.insert(both.sequence.items.end(), second.sequence.items.begin(),
                                   second.sequence.items.end());
        both.folded += second.folded;
        both.sequence.look = second.sequence.look;
        both.sequence.look_set = second.sequence.look_set;
        all.push_back(std::move(both));
        if (all.size() > kMaxAlternatives || all.back().sequence.items.size() > kMaxItems) throw NotOfThisKind();
      }
    }
    return all;
  }

  std::pair<ClassSequence::Item, char> repeated_class(bool any_case) {
    auto [set, folded] = plain_class(any_case);
    ClassSequence::Item item{set};
    if (skip("{")) {
      item.min = number();
      item.max = item.min;
      if (skip(",")) item.max = rest_.starts_with("}") ? ClassSequence::kUnbounded : number();
      if (!skip("}") || item.max < item.min || item.max == 0) throw NotOfThisKind();
    } else if (!rest_.empty() && (rest_[0] == '?' || rest_[0] == '*' || rest_[0] == '+')) {
      item.min = rest_[0] == '+' ? 1 : 0;
      if (rest_[0] != '?') item.max = ClassSequence::kUnbounded;
      rest_.remove_prefix(1);
      item.possessive = skip("+");
    }
    if (!rest_.empty() && std::string_view("?*+{").find(rest_[0]) != std::string_view::npos) throw NotOfThisKind();
    return {std::move(item), folded};
  }

  std::uint32_t number() {
    std::uint32_t value = 0;
    std::size_t digits = 0;
    for (; !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; rest_.remove_prefix(1), ++digits) {
      value = 10 * value + static_cast<std::uint32_t>(rest_[0] - '0');
      if (value > kMaxRepeats) throw NotOfThisKind();
    }
    if (digits == 0) throw NotOfThisKind();
    return value;
  }

  // One character or a class; and its letter if it matches in any case, else a blank.
  std::pair<UnicodeSet, char> plain_class(bool any_case) {
    if (rest_.empty()) throw NotOfThisKind();
    if (skip(".")) return {UnicodeSet(0, 0x10FFFF).remove('\n'), ' '};
    if (skip("[")) {
      const bool negated = skip("^");
      UnicodeSet set = class_members(any_case);
      if (negated) set.complement();
      return {std::move(set), ' '};
    }
    if (rest_[0] == '\\') {
      UnicodeSet set;
      if (const auto c = escape(set, "word")) return literal(*c, any_case);
      if (any_case) throw NotOfThisKind();  // \p{Lu} would match lower-case letters as well
      return {std::move(set), ' '};
    }
    if (std::string_view("^$?*+{}|()]").find(rest_[0]) != std::string_view::npos) throw NotOfThisKind();
    return literal(character(), any_case);
  }

  static std::pair<UnicodeSet, char> literal(char32_t c, bool any_case) {
    if (any_case && c >= 0x80) throw NotOfThisKind();
    if (any_case && is_alpha(c)) return {both_cases(c), static_cast<char>(c | 0x20)};
    const auto code_point = static_cast<UChar32>(c);
    return {UnicodeSet(code_point, code_point), ' '};
  }

  UnicodeSet class_members(bool any_case) {
    UnicodeSet members;
    bool is_first = true;
    while (!skip("]")) {
      if (rest_.empty() || rest_.starts_with("&&")) throw NotOfThisKind();
      if (rest_[0] == '[') {
        if (any_case) throw NotOfThisKind();
        posix(members);
        is_first = false;
        continue;
      }
      UnicodeSet set;
      const bool is_hyphen = rest_[0] == '-';
      const std::optional<char32_t> first = rest_[0] == '\\' ? escape(set, "") : character();
      if (!first) {
        members.addAll(set);
        if (any_case || (rest_.starts_with("-") && !rest_.starts_with("-]"))) throw NotOfThisKind();
      } else if (is_hyphen && !is_first && !rest_.starts_with("]")) {
        throw NotOfThisKind();  // a hyphen that is not at an end
      } else if (rest_.starts_with("-") && !rest_.starts_with("-]")) {
        rest_.remove_prefix(1);
        if (rest_.empty() || rest_[0] == '[' || any_case) throw NotOfThisKind();
        const std::optional<char32_t> last = rest_[0] == '\\' ? escape(set, "") : character();
        if (!last || *last < *first) throw NotOfThisKind();
        members.add(static_cast<UChar32>(*first), static_cast<UChar32>(*last));
      } else {
        members.addAll(literal(*first, any_case).first);
      }
      is_first = false;
    }
    if (is_first) throw NotOfThisKind();  // "[]": the bracket is a member
    return members;
  }

  void posix(UnicodeSet& members) {
    if (!skip("[:")) throw NotOfThisKind();
    const bool negated = skip("^");
    const std::size_t end = rest_.find(":]");
    if (end == std::string_view::npos) throw NotOfThisKind();
    const std::string_view name = rest_.substr(0, end);
    rest_.remove_prefix(end + 2);
    UnicodeSet set;
    if (name == "punct") {
      set.addAll(property("P")).addAll(property("S"));
    } else if (name == "word") {
      set.addAll(word_characters());
    } else if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string_view::npos && find_property(name)) {
      set.addAll(property(name));
    } else {
      throw NotOfThisKind();
    }
    members.addAll(negated ? complement(set) : set);
  }

  // Returns the character of an escape, or stores its class in `set` and returns nothing. `word`: the property for \w;
  // empty: within a class.
  std::optional<char32_t> escape(UnicodeSet& set, std::string_view word) {
    if (rest_.size() < 2) throw NotOfThisKind();
    const char c = rest_[1];
    rest_.remove_prefix(2);
    const auto class_of = [&](const UnicodeSet& positive, bool negated) {
      set.addAll(positive);  // a copy would be frozen
      if (negated) set.complement();
      return std::nullopt;
    };
    switch (c) {
      case 'r':
        return U'\r';
      case 'n':
        return U'\n';
      case 't':
        return U'\t';
      case 'f':
        return U'\f';
      case 'v':
        return U'\v';
      case 's':
      case 'S':
        return class_of(property("space"), c == 'S');
      case 'd':
      case 'D':
        return class_of(property("Nd"), c == 'D');
      case 'h':
      case 'H':
        return class_of(property("xdigit"), c == 'H');
      case 'w':
      case 'W':
        return class_of(word.empty() ? word_characters() : property(word), c == 'W');
      case 'p':
      case 'P':
        return named(c == 'P', set);
      case 'x':
        return hexadecimal();
      case 'u':
        return code_unit();
      default:
        if (static_cast<unsigned char>(c) >= 0x80 || is_alpha(static_cast<char32_t>(c)) || (c >= '0' && c <= '9'))
          throw NotOfThisKind();
        return static_cast<char32_t>(c);
    }
  }

  std::optional<char32_t> named(bool negated, UnicodeSet& set) {
    if (!skip("{")) throw NotOfThisKind();
    if (skip("^")) negated = !negated;
    const std::size_t end = rest_.find('}');
    const auto* found = end == std::string_view::npos ? nullptr : find_property(rest_.substr(0, end));
    if (found == nullptr) throw NotOfThisKind();
    rest_.remove_prefix(end + 1);
    set.addAll(*found);
    if (negated) set.complement();
    return std::nullopt;
  }

  char32_t hexadecimal() {
    if (!skip("{")) throw NotOfThisKind();
    const char32_t c = hex_digits(rest_.find('}'));
    skip("}");
    return c;
  }

  char32_t code_unit() { return hex_digits(4); }

  char32_t hex_digits(std::size_t count) {
    if (count == 0 || count > 6 || count > rest_.size()) throw NotOfThisKind();
    char32_t value = 0;
    for (const char digit : rest_.substr(0, count)) {
      const std::size_t at = std::string_view("0123456789abcdef")
                                 .find(digit >= 'A' && digit <= 'F' ? static_cast<char>(digit | 0x20) : digit);
      if (at == std::string_view::npos) throw NotOfThisKind();
      value = 16 * value + static_cast<char32_t>(at);
    }
    rest_.remove_prefix(count);
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) throw NotOfThisKind();
    return value;
  }

  char32_t character() {
    const Utf8Char c = first_char(rest_);
    if (c.code_point == Utf8Char::kIllFormed) throw NotOfThisKind();
    rest_.remove_prefix(c.length);
    return c.code_point;
  }

  bool skip(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  std::string_view rest_;
};

// Two case-insensitive letters that are the folding of one character: Oniguruma would match that character as well.
bool has_ligature(const std::string& folded) {
  for (const char* pair : {"ss", "ff", "fi", "fl", "st"})
    if (folded.find(pair) != std::string::npos) return true;
  return false;
}

bool may_be_empty(const ClassSequence& sequence) {
  return std::all_of(sequence.items.begin(), sequence.items.end(), [](const auto& item) { return item.min == 0; });
}

}  // namespace

std::optional<std::vector<ClassSequence>> parse_class_pattern(std::string_view regex) {
  try {
    std::vector<ClassSequence> result;
    for (Draft& draft : Parser(regex).run()) {
      if (may_be_empty(draft.sequence) || has_ligature(draft.folded)) return std::nullopt;
      result.push_back(std::move(draft.sequence));
    }
    return result;
  } catch (const NotOfThisKind&) {
    return std::nullopt;
  }
}

}  // namespace heddle
