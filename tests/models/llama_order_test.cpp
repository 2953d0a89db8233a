// A token's logits depend on its sequence only, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/trace.h"
#include "models/llama_runner.h"

namespace heddle {
namespace {

using Rows = std::vector<std::vector<float>>;

std::vector<std::int32_t> random_tokens(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 257);
  return tokens;
}

class LlamaOrder : public testing::TestWithParam<const char*> {
 protected:
  Rows prefill(const LlamaRunner::Options& options) {
    LlamaRunner runner(golden_folder(GetParam()), options);
    auto sequence = runner.sequence();
    return runner.step({{&sequence, tokens_}});
  }

  std::vector<std::int32_t> tokens_ = random_tokens(29, 1);
};

TEST_P(LlamaOrder, ThreadsAndPagesChangeNoBit) {
  const Rows expected = prefill({.threads = 1, .page_size = 4});
  EXPECT_EQ(prefill({.threads = 3, .page_size = 4}), expected);
  EXPECT_EQ(prefill({.threads = 2, .page_size = 1}), expected);
  EXPECT_EQ(prefill({.threads = 1, .page_size = 29}), expected);
  EXPECT_EQ(prefill({.threads = 1, .page_size = 64}), expected);
}

TEST_P(LlamaOrder, ChunksAndDecodeChangeNoBit) {
  const Rows expected = prefill({});
  LlamaRunner runner(golden_folder(GetParam()), {.threads = 2});
  auto chunked = runner.sequence();
  auto decoded = runner.sequence();
  Rows chunk_rows = runner.step({{&chunked, {tokens_.begin(), tokens_.begin() + 13}}});
  for (auto& row : runner.step({{&chunked, {tokens_.begin() + 13, tokens_.end()}}}))
    chunk_rows.push_back(std::move(row));
  EXPECT_EQ(chunk_rows, expected);
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    ASSERT_EQ(runner.step({{&decoded, {tokens_[i]}}})[0], expected[i]) << "token " << i;
}

TEST_P(LlamaOrder, NeighboursInTheBatchChangeNoBit) {
  const Rows expected = prefill({});
  LlamaRunner runner(golden_folder(GetParam()), {.threads = 2});
  auto first = runner.sequence();
  auto second = runner.sequence();
  auto third = runner.sequence();
  runner.step({{&first, random_tokens(7, 2)}});
  const Rows rows = runner.step({{&first, random_tokens(1, 3)}, {&second, tokens_}, {&third, random_tokens(9, 4)}});
  for (std::size_t i = 0; i < tokens_.size(); ++i) EXPECT_EQ(rows[1 + i], expected[i]) << "token " << i;
}

TEST_P(LlamaOrder, AForkGoesOnAsItsOriginalWould) {
  LlamaRunner runner(golden_folder(GetParam()), {});
  auto original = runner.sequence();
  runner.step({{&original, {tokens_.begin(), tokens_.begin() + 10}}});  // two pages and a half
  LlamaRunner::Sequence fork{original.pages.fork(), original.tokens};
  // The two write different tokens after the shared ones, the fork first.
  const Rows forked = runner.step({{&fork, random_tokens(6, 9)}});
  const Rows continued = runner.step({{&original, {tokens_.begin() + 10, tokens_.end()}}});
  const Rows expected = prefill({});
  for (std::size_t i = 10; i < tokens_.size(); ++i) EXPECT_EQ(continued[i - 10], expected[i]);

  std::vector<std::int32_t> other(tokens_.begin(), tokens_.begin() + 10);
  for (const std::int32_t token : random_tokens(6, 9)) other.push_back(token);
  auto alone = runner.sequence();
  const Rows expected_fork = runner.step({{&alone, other}});
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(forked[i], expected_fork[10 + i]);
}

TEST_P(LlamaOrder, ATruncatedSequenceForgetsItsTail) {
  LlamaRunner runner(golden_folder(GetParam()), {});
  auto sequence = runner.sequence();
  std::vector<std::int32_t> wrong(tokens_.begin(), tokens_.begin() + 9);
  for (const std::int32_t token : random_tokens(11, 5)) wrong.push_back(token);
  runner.step({{&sequence, wrong}});
  sequence.pages.truncate(9);
  sequence.tokens.resize(9);
  const Rows rows = runner.step({{&sequence, {tokens_.begin() + 9, tokens_.end()}}});
  const Rows expected = prefill({});
  for (std::size_t i = 9; i < tokens_.size(); ++i) EXPECT_EQ(rows[i - 9], expected[i]);
}

TEST_P(LlamaOrder, UnusedPagesAreNeverRead) {
  const Rows expected = prefill({});
  LlamaRunner runner(golden_folder(GetParam()), {.threads = 2});
  const KvPages& kv = runner.executor().kv_pages();
  // All ones is NaN in each of the three dtypes.
  std::fill_n(kv.data, kv.size_bytes(), std::byte{0xff});
  auto sequence = runner.sequence();
  EXPECT_EQ(runner.step({{&sequence, tokens_}}), expected);
}

INSTANTIATE_TEST_SUITE_P(, LlamaOrder, testing::Values("gqa", "mqa-sharded", "gqa-bfloat16", "tied-float16"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(LlamaSpans, NameEachBlockOfEachLayer) {
  struct Names : SpanSink {
    void begin(std::string_view name, int index, Clock::time_point) override {
      if (name != "linear") seen.push_back(fmt::format("{} {}", name, index));  // the plan's
    }
    void end(std::string_view, int, Clock::time_point) override {}
    std::vector<std::string> seen;
  } names;
  LlamaRunner runner(golden_folder("gqa"), {});
  runner.executor().stream().set_span_sink(&names);
  auto sequence = runner.sequence();
  runner.step({{&sequence, {1, 2}}});
  EXPECT_THAT(names.seen,
              testing::ElementsAre("step -1", "attention 0", "attend 0", "feed_forward 0", "attention 1", "attend 1",
                                   "feed_forward 1", "attention 2", "attend 2", "feed_forward 2", "logits -1"));
}

}  // namespace
}  // namespace heddle
