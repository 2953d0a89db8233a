// The demo model's accuracy on held-out cases (rules: tools/demo_llama/cases.py, and the model's card).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <unordered_map>

#include "base/sanitizer.h"
#include "end_to_end/program.h"
#include "engine/engine.h"
#include "engine/rank_models.h"
#include "engine/text_stream.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

struct DemoCase {
  std::string prompt;
  std::string answer;
};

// Greedy answers to all prompts, batched, each cut at its end token.
std::vector<std::string> answers(const std::vector<DemoCase>& cases, std::int64_t max_tokens, int ranks = 1,
                                 int context_ranks = 1) {
  const Tokenizer tokenizer = Tokenizer::load(demo_model());
  Engine engine(load_ranks(Checkpoint(demo_model()), {.context_ranks = context_ranks}, ranks * context_ranks),
                {.threads = 2, .page_size = context_ranks > 1 ? 4 : 0});  // so that short texts are on several ranks
  std::unordered_map<std::int64_t, std::size_t> index_of;
  std::vector<TextStream> streams(cases.size(), TextStream(tokenizer, {}));
  std::vector<std::string> texts(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i)
    index_of[engine.submit({.prompt = tokenizer.encode(cases[i].prompt),
                            .max_tokens = max_tokens,
                            .stop_ids = engine.model_shape().eos_ids})] = i;
  while (!engine.idle())
    for (const TokenOutput& output : engine.step()) {
      const std::size_t i = index_of.at(output.request);
      texts[i] += streams[i].push(output.token);
    }
  return texts;
}

// Pairs that were held out of training.
std::vector<std::pair<int, int>> held_out_pairs(std::size_t count) {
  std::mt19937 random(1);
  std::vector<std::pair<int, int>> pairs;
  while (pairs.size() < count) {
    const int a = static_cast<int>(random() % 1000);
    const int b = static_cast<int>(random() % 1000);
    if ((1009 * a + 9176 * b) % 97 < 5) pairs.emplace_back(a, b);
  }
  return pairs;
}

// Whether this list, in any order, was held out of training.
bool list_is_held_out(std::vector<int> numbers) {
  std::ranges::sort(numbers);
  int value = 0;
  for (const int number : numbers) value = (value * 131 + number + 1) % 10007;
  return value % 20 == 0;
}

double share_right(const std::vector<DemoCase>& cases, std::int64_t max_tokens) {
  const std::vector<std::string> texts = answers(cases, max_tokens);
  std::size_t right = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    right += texts[i] == cases[i].answer;
    if (texts[i] != cases[i].answer) std::printf("  %s%s", cases[i].prompt.c_str(), texts[i].c_str());
  }
  return static_cast<double>(right) / static_cast<double>(cases.size());
}

// Under a sanitizer a case takes twenty times as long, and accuracy is not what such a run checks.
constexpr std::size_t kCases = kSanitizer ? 40 : 100;
constexpr std::size_t kCasesOnRanks = 40;  // whose texts are compared, not counted

TEST(DemoModel, AddsPairsItHasNeverSeen) {
  std::vector<DemoCase> cases;
  for (const auto& [a, b] : held_out_pairs(kCases))
    cases.push_back({fmt::format("{} + {} =", a, b), fmt::format(" {}\n", a + b)});
  EXPECT_GE(share_right(cases, 10), 0.99);
}

TEST(DemoModel, AddsOnSeveralRanksAsOnOne) {
  std::vector<DemoCase> cases;
  for (const auto& [a, b] : held_out_pairs(kCasesOnRanks)) cases.push_back({fmt::format("{} + {} =", a, b), ""});
  const std::vector<std::string> alone = answers(cases, 10);
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(answers(cases, 10, ranks), alone) << ranks << " ranks";
}

TEST(DemoModel, AddsOnDividedContextsAsOnOneRank) {
  std::vector<DemoCase> cases;
  for (const auto& [a, b] : held_out_pairs(kCasesOnRanks)) cases.push_back({fmt::format("{} + {} =", a, b), ""});
  const std::vector<std::string> alone = answers(cases, 10);
  EXPECT_EQ(answers(cases, 10, 1, 2), alone);
  EXPECT_EQ(answers(cases, 10, 2, 2), alone);
}

TEST(DemoModel, SubtractsPairsItHasNeverSeen) {
  std::vector<DemoCase> cases;
  for (const auto& [a, b] : held_out_pairs(kCases))
    cases.push_back({fmt::format("{} - {} =", a, b), fmt::format(" {}\n", a - b)});
  EXPECT_GE(share_right(cases, 10), 0.99);
}

TEST(DemoModel, SortsListsItHasNeverSeen) {
  std::mt19937 random(1);
  std::vector<DemoCase> cases;
  while (cases.size() < kCases) {
    std::vector<int> numbers(3 + random() % 4);
    for (int& number : numbers) number = static_cast<int>(random() % 100);
    if (!list_is_held_out(numbers)) continue;
    std::string prompt = "sort:";
    for (const int number : numbers) prompt += fmt::format(" {}", number);
    std::ranges::sort(numbers);
    std::string answer;
    for (const int number : numbers) answer += fmt::format(" {}", number);
    cases.push_back({prompt + " ->", answer + "\n"});
  }
  EXPECT_GE(share_right(cases, 30), 0.98);
}

TEST(DemoModel, AnswersInChatForm) {
  const std::vector<DemoCase> cases{{"<|user|>\nWhat is 137 plus 254?<|end|>\n<|assistant|>\n", ""}};
  EXPECT_NE(answers(cases, 40)[0].find("391"), std::string::npos);
}

TEST(DemoModel, IsSmallEnoughToCarry) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(demo_model()))
    if (entry.is_regular_file()) bytes += entry.file_size();
  EXPECT_LE(bytes, 10u << 20);
}

}  // namespace
}  // namespace heddle
