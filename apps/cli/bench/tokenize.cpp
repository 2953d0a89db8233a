// bench tokenize: text to ids and back, in megabytes of text per second on one thread.
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/bench/bench.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "kernels/sampling/random.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestText = std::size_t{256} << 20;
constexpr std::size_t kMadeUpBytes = std::size_t{1} << 20;
constexpr std::uint64_t kTextSeed = 5;

// Of about the average length of English words, common ones first.
constexpr auto kWords = std::to_array<std::string_view>(
    {"the",      "of",       "and",     "to",       "in",      "a",       "is",      "that",      "it",
     "was",      "for",      "on",      "as",       "with",    "be",      "he",      "at",        "by",
     "had",      "not",      "from",    "his",      "but",     "have",    "which",   "they",      "one",
     "you",      "were",     "all",     "her",      "would",   "there",   "their",   "we",        "him",
     "been",     "has",      "when",    "who",      "will",    "no",      "more",    "if",        "out",
     "so",       "up",       "said",    "what",     "its",     "about",   "than",    "into",      "them",
     "can",      "only",     "other",   "time",     "new",     "some",    "could",   "these",     "two",
     "may",      "first",    "then",    "do",       "any",     "like",    "my",      "now",       "over",
     "such",     "our",      "man",     "me",       "even",    "most",    "made",    "after",     "also",
     "well",     "did",      "many",    "before",   "must",    "years",   "back",    "through",   "much",
     "where",    "your",     "way",     "down",     "should",  "because", "long",    "each",      "just",
     "state",    "those",    "people",  "mister",   "how",     "too",     "little",  "good",      "world",
     "make",     "very",     "year",    "still",    "see",     "work",    "men",     "here",      "against",
     "between",  "both",     "life",    "under",    "being",   "three",   "never",   "know",      "same",
     "last",     "another",  "while",   "himself",  "general", "several", "example", "important", "weather",
     "language", "computer", "library", "question", "morning"});

std::string made_up_text() {
  std::string text;
  bool sentence_begins = true;
  for (std::uint32_t i = 0; text.size() < kMadeUpBytes; ++i) {
    const double u = uniform(kTextSeed, i, 0);
    std::string word(kWords[static_cast<std::size_t>(u * u * static_cast<double>(kWords.size()))]);
    if (sentence_begins) word[0] = static_cast<char>(word[0] - 'a' + 'A');
    const double end = uniform(kTextSeed, i, 1);
    sentence_begins = end < 0.06;
    text += word;
    text += end < 0.05 ? ". " : end < 0.06 ? ".\n\n" : end < 0.12 ? ", " : " ";
  }
  return text;
}

double elapsed_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

BenchResult bench_tokenize(const BenchOptions& options) {
  const InterruptGuard guard;
  const Tokenizer tokenizer = load_tokenizer(options.model.model);
  const std::string text = options.text_file.empty() ? made_up_text() : read_file(options.text_file, kLongestText);
  if (text.empty()) throw_error<InputError>("--text {}: the file is empty", printable_text(options.text_file));
  const std::vector<std::int32_t> ids = tokenizer.encode(text, SpecialTokens::omit);
  const bool same = tokenizer.decode(ids) == text;
  std::vector<double> encode, decode;
  for (int i = 0; i < options.repeats; ++i) {
    stop_if_interrupted(guard);
    const auto begin = Clock::now();
    if (tokenizer.encode(text, SpecialTokens::omit) != ids) throw Failure("two runs of the tokenizer differ");
    encode.push_back(elapsed_since(begin));
    const auto middle = Clock::now();
    if (tokenizer.decode(ids).empty()) throw Failure("the tokenizer decodes to nothing");
    decode.push_back(elapsed_since(middle));
  }
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  BenchResult result;
  result.fields = {{"text", options.text_file.empty() ? "synthetic" : options.text_file},
                   {"bytes", text.size()},
                   {"tokens", ids.size()},
                   {"decodes_to_the_same_text", same},
                   {"encode_seconds", spread(encode)},
                   {"decode_seconds", spread(decode)},
                   {"encode_megabytes_per_second", megabytes / median(encode)},
                   {"decode_megabytes_per_second", megabytes / median(decode)}};
  result.table = table_text(
      {{"bytes", "tokens", "encode MB/s", "decode MB/s", "same text again"},
       {std::to_string(text.size()), std::to_string(ids.size()), fmt::format("{:.2f}", megabytes / median(encode)),
        fmt::format("{:.2f}", megabytes / median(decode)), same ? "yes" : "no"}});
  return result;
}

}  // namespace heddle
