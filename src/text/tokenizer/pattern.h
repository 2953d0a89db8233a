// A pattern of tokenizer.json, {"Regex": "..."} or {"String": "..."}, and where it matches a text. A regular expression
// is matched by hand where it is of the kind that class_pattern.h describes, else by ICU.
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
  // Throws InputError with ICU's message for a regular expression that ICU refuses, and for a pattern above 64 KiB
  // (a string: 1 KiB).
  static Pattern from_json(const JsonField& field);
  static Pattern regex(std::string_view expression, std::string field);

  // The same, always by ICU: what the other way is compared with.
  static Pattern icu_regex(std::string_view expression, std::string field);

  // One character of `set`.
  static Pattern any_of(const icu::UnicodeSet& set);

 private:
  friend class PatternScan;
  struct Compiled;
  explicit Pattern(std::shared_ptr<const Compiled> compiled);

  std::shared_ptr<const Compiled> compiled_;  // shared by all threads: immutable
};

// One walk of one pattern over one text, for one thread. The text is valid UTF-8 and outlives the scan.
class PatternScan {
 public:
  PatternScan(const Pattern& pattern, std::string_view text);
  ~PatternScan();
  PatternScan(const PatternScan&) = delete;
  PatternScan& operator=(const PatternScan&) = delete;

  // The matches in `region`, from left to right, as if the region were the whole text. A match may be empty, but not
  // where another one just ended (as Oniguruma's iterator has it). Regions are asked for in ascending order. `matches`
  // is overwritten. Throws InputError when matching exceeds its steps, or in ICU its memory or its time, so that a
  // hostile pattern is an error and not a hang (README.md of this folder has the limits).
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
  // A pair of offsets that correspond; it only moves forward.
  std::uint32_t utf8_at_ = 0;
  std::int32_t utf16_at_ = 0;
};

// `text` with `content` for each match.
std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content);

}  // namespace heddle
