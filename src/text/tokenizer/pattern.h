// A pattern of tokenizer.json, {"Regex": "..."} or {"String": "..."}, and its matches in a text. class_pattern.h
// matches the regular expressions that it can express; ICU matches the others.
#pragma once

#include <unicode/uniset.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/pieces.h"

namespace heddle {

class Pattern {
 public:
  // Throws InputError with ICU's message for an invalid regular expression, and for a pattern above 64 KiB (a string: 1
  // KiB).
  static Pattern from_json(const JsonField& field);
  static Pattern regex(std::string_view expression, std::string field);

  // The same, always by ICU: the reference for class_pattern.h.
  static Pattern icu_regex(std::string_view expression, std::string field);

  // Matches one character of `set`.
  static Pattern any_of(const icu::UnicodeSet& set);

 private:
  friend class PatternScan;
  struct Compiled;
  explicit Pattern(std::shared_ptr<const Compiled> compiled);

  std::shared_ptr<const Compiled> compiled_;  // shared by all threads: immutable
};

// A pass of one pattern over one text, for one thread. The text is valid UTF-8 and outlives the scan.
class PatternScan {
 public:
  PatternScan(const Pattern& pattern, std::string_view text);
  ~PatternScan();
  PatternScan(const PatternScan&) = delete;
  PatternScan& operator=(const PatternScan&) = delete;

  // The matches in `region`, from left to right, as if the region were the whole text. Overwrites `matches`. A match
  // may be empty, but not where another one just ended (as in Oniguruma's iterator). Ask for regions in ascending
  // order. Throws InputError when matching exceeds its steps, or in ICU its memory or its time, so that a hostile
  // pattern is an error and not a hang (README.md of this folder has the limits).
  void find(Span region, std::vector<Span>& matches);

 private:
  struct Icu;
  [[noreturn]] void fail(std::string_view why) const;
  void find_string(Span region, std::vector<Span>& matches);
  void find_regex(Span region, std::vector<Span>& matches);
  std::int32_t to_utf16(std::uint32_t offset);
  std::uint32_t to_utf8(std::int32_t offset);

  std::shared_ptr<const Pattern::Compiled> pattern_;
  std::string_view text_;
  std::unique_ptr<Icu> icu_;  // null where ICU is not needed
  std::int64_t steps_left_ = 0;
  // Corresponding offsets; they only move forward.
  std::uint32_t utf8_at_ = 0;
  std::int32_t utf16_at_ = 0;
};

// Replaces each match in `text` by `content`.
std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content);

}  // namespace heddle
