#include "text/tokenizer/unicode_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>

#include "base/error.h"
#include "text/tokenizer/unicode_data.h"

namespace heddle {
namespace {

using icu::UnicodeSet;
using unicode_data::CodePointRange;

constexpr UChar32 kLast = 0x10FFFF;

UnicodeSet set_of(std::span<const CodePointRange> ranges) {
  UnicodeSet set;
  for (const CodePointRange range : ranges)
    set.add(static_cast<UChar32>(range.first), static_cast<UChar32>(range.last));
  return set;
}

std::string loose(std::string_view name) {
  std::string result;
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

struct Sets {
  std::map<std::string, UnicodeSet, std::less<>> named;
  UnicodeSet word_in_class, rust_word, rust_numeric, rust_punctuation, accents;

  Sets();

 private:
  UnicodeSet unite(std::initializer_list<std::string_view> names) const {
    UnicodeSet set;
    for (const std::string_view name : names) set.addAll(named.find(name)->second);
    return set;
  }
  void add_categories();
  void add_posix();
};

Sets::Sets() {
  add_categories();
  named["whitespace"] = named["space"] = set_of(unicode_data::kSpace);
  named["alphabetic"] = unite({"l", "nl"}).addAll(set_of(unicode_data::kOtherAlphabetic));
  named["lowercase"] = unite({"ll"}).addAll(set_of(unicode_data::kOtherLowercase));
  named["uppercase"] = unite({"lu"}).addAll(set_of(unicode_data::kOtherUppercase));
  word_in_class = unite({"alphabetic", "m", "nd", "pc"});
  add_posix();
  for (const auto& range : unicode_data::kScripts)
    named[range.script].add(static_cast<UChar32>(range.first), static_cast<UChar32>(range.last));

  rust_word = UnicodeSet(word_in_class).add(0x200C, 0x200D);
  rust_numeric = unite({"n"}).addAll(set_of(unicode_data::kOtherNumeric));
  rust_punctuation = set_of(unicode_data::kPunctuation);
  accents = set_of(unicode_data::kAccents);
  for (auto& [name, set] : named) set.freeze();
  for (UnicodeSet* set : {&word_in_class, &rust_word, &rust_numeric, &rust_punctuation, &accents}) set->freeze();
}

void Sets::add_categories() {
  const auto runs = unicode_data::kCategories;
  for (std::size_t index = 0; index < runs.size(); ++index) {
    const auto first = static_cast<UChar32>(runs[index] >> 5);
    const UChar32 last = index + 1 < runs.size() ? static_cast<UChar32>(runs[index + 1] >> 5) - 1 : kLast;
    const std::string name = loose(unicode_data::kCategoryNames[runs[index] & 31]);
    named[name].add(first, last);
    named[name.substr(0, 1)].add(first, last);
  }
  named["lc"] = unite({"lu", "ll", "lt"});
  constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
      {"l", "letter"},
      {"lu", "uppercaseletter"},
      {"ll", "lowercaseletter"},
      {"lt", "titlecaseletter"},
      {"lc", "casedletter"},
      {"lm", "modifierletter"},
      {"lo", "otherletter"},
      {"m", "mark"},
      {"m", "combiningmark"},
      {"mn", "nonspacingmark"},
      {"mc", "spacingmark"},
      {"me", "enclosingmark"},
      {"n", "number"},
      {"nd", "decimalnumber"},
      {"nl", "letternumber"},
      {"no", "othernumber"},
      {"p", "punctuation"},
      {"p", "punct"},
      {"pc", "connectorpunctuation"},
      {"pd", "dashpunctuation"},
      {"ps", "openpunctuation"},
      {"pe", "closepunctuation"},
      {"pi", "initialpunctuation"},
      {"pf", "finalpunctuation"},
      {"po", "otherpunctuation"},
      {"s", "symbol"},
      {"sm", "mathsymbol"},
      {"sc", "currencysymbol"},
      {"sk", "modifiersymbol"},
      {"so", "othersymbol"},
      {"z", "separator"},
      {"zs", "spaceseparator"},
      {"zl", "lineseparator"},
      {"zp", "paragraphseparator"},
      {"c", "other"},
      {"cc", "control"},
      {"cf", "format"},
      {"co", "privateuse"},
      {"cn", "unassigned"},
  };
  for (const auto& [name, long_name] : kLongNames) named[std::string(long_name)] = unite({name});
}

void Sets::add_posix() {
  named["alpha"] = unite({"alphabetic"});
  named["upper"] = unite({"uppercase"});
  named["lower"] = unite({"lowercase"});
  named["digit"] = unite({"nd"});
  named["alnum"] = unite({"alphabetic", "nd"});
  named["cntrl"] = unite({"cc"});
  named["blank"] = unite({"zs"}).add('\t');
  named["xdigit"] = UnicodeSet('0', '9').add('a', 'f').add('A', 'F');
  named["graph"] = UnicodeSet(0, kLast).removeAll(unite({"space", "cc", "cn"})).remove(0xD800, 0xDFFF);
  named["print"] = unite({"graph", "zs"});
  named["any"] = UnicodeSet(0, kLast);
  named["assigned"] = UnicodeSet(0, kLast).removeAll(unite({"cn"}));
  named["ascii"] = UnicodeSet(0, 0x7F);
  named["word"] = UnicodeSet(word_in_class).add(0xB2, 0xB3).add(0xB9).add(0xBC, 0xBE);
}

const Sets& sets() {
  static const Sets instance;
  return instance;
}

void append_ranges(std::string& out, const UnicodeSet& set) {
  for (std::int32_t index = 0; index < set.getRangeCount(); ++index)
    out += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<std::uint32_t>(set.getRangeStart(index)),
                       static_cast<std::uint32_t>(set.getRangeEnd(index)));
}

}  // namespace

const UnicodeSet* find_property(std::string_view name) {
  const auto found = sets().named.find(loose(name));
  return found == sets().named.end() ? nullptr : &found->second;
}

const UnicodeSet& property(std::string_view name) {
  if (const auto* set = find_property(name)) return *set;
  throw_error<InvalidArgument>("there is no property {}", name);
}

const UnicodeSet& word_characters() {
  return sets().word_in_class;
}
const UnicodeSet& rust_word_characters() {
  return sets().rust_word;
}
const UnicodeSet& rust_numeric() {
  return sets().rust_numeric;
}
const UnicodeSet& rust_punctuation() {
  return sets().rust_punctuation;
}
const UnicodeSet& accents() {
  return sets().accents;
}

std::string set_for_icu(std::string_view near, const UnicodeSet& set) {
  UErrorCode status = U_ZERO_ERROR;
  UnicodeSet known(icu::UnicodeString::fromUTF8(fmt::format("[{}]", near)), status);
  if (U_FAILURE(status)) {
    known.clear();
    near = "";
  }
  UnicodeSet added;
  added.addAll(set);  // a copy would be frozen
  added.removeAll(known).remove(0xD800, 0xDFFF);
  UnicodeSet removed(known);
  removed.removeAll(set).remove(0xD800, 0xDFFF);
  std::string added_ranges;
  append_ranges(added_ranges, added);
  if (removed.isEmpty()) return fmt::format("[{}{}]", near, added_ranges);
  std::string removed_ranges;
  append_ranges(removed_ranges, removed);
  return fmt::format("[[{}{}]--[{}]]", near, added_ranges, removed_ranges);
}

char32_t lower_case(char32_t code_point) {
  const auto runs = unicode_data::kLowercase;
  const auto behind =
      std::upper_bound(runs.begin(), runs.end(), code_point, [](char32_t c, const auto& run) { return c < run.first; });
  if (behind == runs.begin()) return code_point;
  const auto& run = *std::prev(behind);
  if (code_point <= run.last && (code_point - run.first) % run.step == 0)
    return static_cast<char32_t>(static_cast<std::int32_t>(code_point) + run.delta);
  return code_point;
}

}  // namespace heddle
