#include "text/tokenizer/pattern.h"

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/tokenizer/class_pattern.h"
#include "text/tokenizer/regex_syntax.h"
#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxRegexBytes = 64 << 10;
// The search for a string may cost its length per byte of text.
constexpr std::size_t kMaxStringBytes = 1 << 10;

// For class_pattern.h's matching: about a second, and enough for every byte of any pattern that is not quadratic.
constexpr std::int64_t kLeastSteps = std::int64_t{1} << 28;
constexpr std::int64_t kStepsPerByte = 256;

// For ICU.
constexpr std::int32_t kMaxStackBytes = 64 << 20;
constexpr std::size_t kBytesPerSecond = 64 << 10;
constexpr std::chrono::seconds kLeastTime{2};

struct Deadline {
  Clock::time_point end;
  unsigned calls = 0;

  // Reads the clock on every 256th call.
  bool passed() { return ++calls % 256 == 0 && Clock::now() > end; }
};

// ICU calls these every few thousand steps of backtracking, and after each position where no match began.
UBool go_on(const void* context, std::int32_t) {
  return Clock::now() < static_cast<const Deadline*>(context)->end;
}
UBool go_on_searching(const void* context, std::int64_t) {
  return !static_cast<Deadline*>(const_cast<void*>(context))->passed();
}

std::uint32_t utf8_length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

}  // namespace

struct Pattern::Compiled {
  std::string field;
  // One of the three; where the first two are empty, `string` is searched for literally.
  std::optional<ClassPattern> classes;
  std::unique_ptr<icu::RegexPattern> regex;
  std::string string;
};

Pattern::Pattern(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}

Pattern Pattern::from_json(const JsonField& field) {
  if (const auto regex = field.find("Regex")) return Pattern::regex(regex->text(), regex->path());
  const JsonField string = field.at("String");
  auto compiled = std::make_shared<Compiled>();
  compiled->field = string.path();
  compiled->string = string.text();
  if (compiled->string.size() > kMaxStringBytes)
    string.fail(fmt::format("longer than {} bytes (max_string_bytes)", kMaxStringBytes));
  return Pattern(std::move(compiled));
}

Pattern Pattern::any_of(const icu::UnicodeSet& set) {
  auto compiled = std::make_shared<Compiled>();
  compiled->field = "a set of characters";
  compiled->classes = ClassPattern::any_of(set);
  return Pattern(std::move(compiled));
}

Pattern Pattern::regex(std::string_view expression, std::string field) {
  if (expression.size() <= kMaxRegexBytes) {
    const auto sequences = parse_class_pattern(expression);
    if (auto classes = sequences ? ClassPattern::from(*sequences) : std::nullopt) {
      auto compiled = std::make_shared<Compiled>();
      compiled->field = std::move(field);
      compiled->classes = std::move(classes);
      return Pattern(std::move(compiled));
    }
  }
  return icu_regex(expression, std::move(field));
}

Pattern Pattern::icu_regex(std::string_view expression, std::string field) {
  if (expression.size() > kMaxRegexBytes)
    throw_error<InputError>("{}: longer than {} bytes (max_regex_bytes)", field, kMaxRegexBytes);
  std::string translated;
  try {
    translated = regex_for_icu(expression);
  } catch (const UnsupportedEscape& unsupported) {
    throw_error<InputError>("{}: the regular expression has {}, which is not supported", field, unsupported.escape);
  }
  UErrorCode status = U_ZERO_ERROR;
  UParseError where{};
  auto compiled = std::make_shared<Compiled>();
  compiled->regex.reset(icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(translated),
                                                   UREGEX_MULTILINE | UREGEX_UNIX_LINES, where, status));
  if (U_FAILURE(status))
    throw_error<InputError>("{}: ICU rejects the regular expression: {} at character {} of {}", field,
                            u_errorName(status), where.offset, shorten(translated));
  compiled->field = std::move(field);
  return Pattern(std::move(compiled));
}

struct PatternScan::Icu {
  icu::UnicodeString text;
  icu::UnicodeString region;  // a view of a part of `text`
  std::unique_ptr<icu::RegexMatcher> matcher;
  Deadline deadline;
  bool is_ascii;
};

PatternScan::PatternScan(const Pattern& pattern, std::string_view text) : pattern_(pattern.compiled_), text_(text) {
  steps_left_ = kLeastSteps + kStepsPerByte * static_cast<std::int64_t>(text.size());
  if (!pattern_->regex) return;
  icu_ = std::make_unique<Icu>();
  icu_->text = icu::UnicodeString::fromUTF8({text.data(), static_cast<std::int32_t>(text.size())});
  icu_->is_ascii = static_cast<std::size_t>(icu_->text.length()) == text.size();
  icu_->deadline.end = Clock::now() + kLeastTime + std::chrono::seconds(text.size() / kBytesPerSecond);
  UErrorCode status = U_ZERO_ERROR;
  icu_->matcher.reset(pattern_->regex->matcher(status));
  if (U_SUCCESS(status)) {
    icu_->matcher->setStackLimit(kMaxStackBytes, status);
    icu_->matcher->setMatchCallback(go_on, &icu_->deadline, status);
    icu_->matcher->setFindProgressCallback(go_on_searching, &icu_->deadline, status);
  }
  if (U_FAILURE(status)) throw_error<Failure>("ICU cannot prepare a regular expression: {}", u_errorName(status));
}

PatternScan::~PatternScan() = default;

void PatternScan::find(Span region, std::vector<Span>& matches) {
  matches.clear();
  if (pattern_->classes) {
    if (!pattern_->classes->find(text_, region, steps_left_, matches))
      fail(fmt::format("it needs more than {} steps and {} for each byte (max_match_steps)", kLeastSteps,
                       kStepsPerByte));
  } else if (icu_) {
    find_regex(region, matches);
  } else {
    find_string(region, matches);
  }
}

void PatternScan::fail(std::string_view why) const {
  throw_error<InputError>("{}: the regular expression fails on this text of {} bytes: {}", pattern_->field,
                          text_.size(), why);
}

void PatternScan::find_string(Span region, std::vector<Span>& matches) {
  const std::string_view needle = pattern_->string;
  const std::string_view text = text_.substr(0, region.end);
  if (needle.empty()) {  // matches between any two characters
    for (std::uint32_t at = region.begin; at < region.end; at += utf8_length(static_cast<unsigned char>(text[at])))
      matches.push_back({at, at});
    matches.push_back({region.end, region.end});
    return;
  }
  for (std::size_t at = region.begin; (at = text.find(needle, at)) != std::string_view::npos; at += needle.size())
    matches.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + needle.size())});
}

void PatternScan::find_regex(Span region, std::vector<Span>& matches) {
  icu::RegexMatcher& matcher = *icu_->matcher;
  const std::int32_t begin = to_utf16(region.begin);
  const std::int32_t end = to_utf16(region.end);
  utf8_at_ = region.begin;
  utf16_at_ = begin;
  // Not RegexMatcher::region: ICU's look-behind would see the text before it.
  icu_->region.setTo(false, icu_->text.getBuffer() + begin, end - begin);
  matcher.reset(icu_->region);
  UErrorCode status = U_ZERO_ERROR;
  std::int32_t last_end = -1;
  while (U_SUCCESS(status) && matcher.find(status)) {
    const std::int32_t match_begin = matcher.start(status);
    const std::int32_t match_end = matcher.end(status);
    if (U_FAILURE(status)) break;
    if (match_begin == match_end && match_begin == last_end) continue;
    last_end = match_end;
    const std::uint32_t first = to_utf8(begin + match_begin);
    matches.push_back({first, to_utf8(begin + match_end)});
    if (icu_->deadline.passed()) status = U_REGEX_TIME_OUT;
  }
  if (U_SUCCESS(status)) return;
  const auto limit = [&]() -> std::string {
    if (status == U_REGEX_STOPPED_BY_CALLER || status == U_REGEX_TIME_OUT)
      return fmt::format("it takes longer than {} s and 1 s for each {} bytes (max_match_time)", kLeastTime.count(),
                         kBytesPerSecond);
    if (status == U_REGEX_STACK_OVERFLOW)
      return fmt::format("it needs more than {} bytes for backtracking (max_backtracking_bytes)", kMaxStackBytes);
    return u_errorName(status);
  };
  throw_error<InputError>("{}: the regular expression fails on this text of {} bytes: {}", pattern_->field,
                          text_.size(), limit());
}

std::int32_t PatternScan::to_utf16(std::uint32_t offset) {
  if (icu_->is_ascii) return static_cast<std::int32_t>(offset);
  while (utf8_at_ < offset) {
    const std::uint32_t length = utf8_length(static_cast<unsigned char>(text_[utf8_at_]));
    utf8_at_ += length;
    utf16_at_ += length == 4 ? 2 : 1;
  }
  return utf16_at_;
}

std::uint32_t PatternScan::to_utf8(std::int32_t offset) {
  if (icu_->is_ascii) return static_cast<std::uint32_t>(offset);
  while (utf16_at_ < offset) {
    const std::uint32_t length = utf8_length(static_cast<unsigned char>(text_[utf8_at_]));
    utf8_at_ += length;
    utf16_at_ += length == 4 ? 2 : 1;
  }
  return utf8_at_;
}

std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content) {
  std::vector<Span> matches;
  PatternScan(pattern, text).find({0, static_cast<std::uint32_t>(text.size())}, matches);
  std::size_t size = text.size() + matches.size() * content.size();  // both factors are below 2^31
  for (const Span match : matches) size -= match.end - match.begin;
  check_text_size(size);
  std::string result;
  result.reserve(size);
  std::size_t copied = 0;
  for (const Span match : matches) {
    result.append(text, copied, match.begin - copied);
    result += content;
    copied = match.end;
  }
  result.append(text, copied);
  return result;
}

}  // namespace heddle
