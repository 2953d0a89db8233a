// Requests that reuse what another left in the cache: the same tokens, sooner, and never at the cost of a running one.
#include "engine/kept_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/error.h"
#include "engine/engine.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle::kept_sequences {
namespace {

constexpr std::int64_t kVocab = 331;                         // of the golden models
constexpr std::int64_t kPageBytes = 2 * 3 * 4 * 2 * 24 * 4;  // of 4 tokens

using Tokens = std::vector<std::int32_t>;

Engine make_engine(const EngineOptions& options = {}) {
  const auto folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
  return Engine(load_model(Checkpoint(folder), {}), options);
}

Tokens random_tokens(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  Tokens tokens(count);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % kVocab);
  return tokens;
}

struct Answer {
  std::int64_t id = 0;
  Tokens tokens;
  std::vector<double> logprobs;
  int num_computed = 0;  // of the prompt
};

Answer ask(Engine& engine, Tokens prompt, AfterEnd after_end = AfterEnd::keep, std::int64_t max_tokens = 8) {
  Answer answer;
  answer.id = engine.submit({.prompt = std::move(prompt),
                             .sampling = {.temperature = 0.9, .seed = 3},
                             .max_tokens = max_tokens,
                             .num_top_logprobs = 0,
                             .after_end = after_end});
  while (!engine.idle()) {
    for (const TokenOutput& output : engine.step()) {
      if (output.request != answer.id) continue;
      answer.tokens.push_back(output.token);
      answer.logprobs.push_back(*output.logprob);
    }
    answer.num_computed += engine.last_step().num_prompt_tokens;
  }
  return answer;
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(KeptSequences, ATurnComputesOnlyItsNewTokensAndGivesTheSameBits) {
  for (const int page_size : {1, 3, 32}) {
    Engine session = make_engine({.page_size = page_size});
    Tokens conversation = random_tokens(1, 20);
    std::optional<std::int64_t> before;
    std::size_t in_cache = 0;
    for (unsigned turn = 0; turn < 4; ++turn) {
      const Answer answer = ask(session, conversation);
      EXPECT_EQ(answer.num_computed, static_cast<int>(conversation.size() - in_cache)) << "turn " << turn;
      Engine fresh = make_engine();
      const Answer expected = ask(fresh, conversation);
      EXPECT_EQ(answer.tokens, expected.tokens);
      EXPECT_EQ(answer.logprobs, expected.logprobs) << "bit for bit";
      if (before) session.cancel(*before);
      before = answer.id;
      in_cache = conversation.size() + answer.tokens.size() - 1;  // nobody computed the last token that was sampled
      conversation = joined(joined(conversation, answer.tokens), random_tokens(100 + turn, 5));
    }
  }
}

TEST(KeptSequences, APromptThatPartsFromWhatIsKeptComputesFromThere) {
  Engine session = make_engine({.page_size = 4});
  const Tokens first = random_tokens(1, 30);
  ask(session, first);
  Tokens edited = first;
  edited[17] = (edited[17] + 1) % kVocab;
  const Answer answer = ask(session, edited);
  EXPECT_EQ(answer.num_computed, 30 - 17);
  Engine fresh = make_engine();
  EXPECT_EQ(answer.logprobs, ask(fresh, edited).logprobs);
  // The sequence kept first is unchanged: the edit wrote into pages of its own.
  const Answer again = ask(session, first);
  EXPECT_EQ(again.num_computed, 1) << "the last token of a prompt is always computed, for its logits";
  EXPECT_EQ(again.logprobs, ask(fresh, first).logprobs);
}

TEST(KeptSequences, NothingIsTakenOverFromRequestsThatKeptNothingOrWereForgotten) {
  Engine engine = make_engine();
  const Tokens prompt = random_tokens(1, 20);
  ask(engine, prompt, AfterEnd::release);
  const Answer kept = ask(engine, prompt);
  EXPECT_EQ(kept.num_computed, 20);
  engine.cancel(kept.id);
  EXPECT_EQ(ask(engine, prompt).num_computed, 20);
}

TEST(KeptSequences, ARequestThatIsEndedEarlyKeepsWhatWasComputed) {
  Engine engine = make_engine({.max_sequences = 1, .max_tokens_per_step = 8});
  const Tokens prompt = random_tokens(1, 20);
  const std::int64_t id = engine.submit({.prompt = prompt, .after_end = AfterEnd::keep});
  engine.step();
  engine.end(id);
  engine.end(id);
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(ask(engine, prompt).num_computed, 20 - 8);
}

TEST(KeptSequences, GiveWayBeforeAnythingThatRuns) {
  constexpr int kPages = 16;
  const EngineOptions options{
      .max_sequences = 4, .max_tokens_per_step = 64, .page_size = 4, .kv_bytes = kPages * kPageBytes};
  Engine engine = make_engine(options);
  for (unsigned i = 0; i < 4; ++i) ask(engine, random_tokens(i, 10));  // 5 pages each, so the first is gone by now
  EXPECT_EQ(ask(engine, random_tokens(3, 10)).num_computed, 1);
  EXPECT_EQ(ask(engine, random_tokens(0, 10)).num_computed, 10);

  // Three that fit together only when nothing is kept: none is preempted, so none of their tokens is computed twice.
  std::vector<std::int64_t> ids;
  int computed = 0;
  for (unsigned i = 0; i < 3; ++i) ids.push_back(engine.submit({.prompt = random_tokens(10 + i, 12), .max_tokens = 8}));
  while (!engine.idle()) {
    engine.step();
    computed += engine.last_step().num_prompt_tokens;
  }
  EXPECT_EQ(computed, 3 * 12);
  // All pages can be allocated again.
  EXPECT_EQ(ask(engine, random_tokens(20, 50), AfterEnd::release, 14).tokens.size(), 14u);
}

TEST(KeptSequences, ASequenceThatGaveWayIsAsGoodAsNew) {
  // Interleaved conversations over a cache that holds little more than one of them: each drops another's pages.
  Engine engine =
      make_engine({.max_sequences = 2, .max_tokens_per_step = 16, .page_size = 4, .kv_bytes = 12 * kPageBytes});
  for (unsigned turn = 0; turn < 12; ++turn) {
    const Tokens prompt = random_tokens(turn % 3, 16 + turn);
    Engine fresh = make_engine();
    EXPECT_EQ(ask(engine, prompt).logprobs, ask(fresh, prompt).logprobs) << turn;
  }
}

TEST(KeptSequences, TheLongestBeginningWinsAndTheOldestGivesWay) {
  PageAllocator pages(10);
  KeptSequences kept;
  const auto keep = [&](std::int64_t id, const Tokens& tokens) {
    std::vector<PageCopy> copies;
    PageTable table(pages, 2);
    ASSERT_TRUE(table.grow(static_cast<int>(tokens.size()), copies));
    kept.keep(id, tokens, std::move(table));
  };
  keep(1, {1, 2, 3, 4});
  keep(2, {1, 2, 9});
  keep(3, {7});
  EXPECT_EQ(pages.num_free(), 5);
  EXPECT_EQ(kept.longest_prefix(Tokens{1, 2, 3, 5}, 100)->length(), 3);
  EXPECT_EQ(kept.longest_prefix(Tokens{1, 2, 3, 5}, 2)->length(), 2);
  EXPECT_FALSE(kept.longest_prefix(Tokens{1, 2, 3, 5}, 0).has_value());
  EXPECT_FALSE(kept.longest_prefix(Tokens{8}, 100).has_value());
  EXPECT_EQ(kept.longest_prefix(Tokens{1, 2, 3}, 3)->length(), 3) << "1 was used last now";
  EXPECT_TRUE(kept.give_way());
  EXPECT_EQ(kept.longest_prefix(Tokens{1, 2, 9}, 3)->length(), 2) << "2 was kept or used the longest ago";
  kept.remove(3);
  kept.remove(3);
  EXPECT_TRUE(kept.give_way());
  EXPECT_FALSE(kept.give_way());
  EXPECT_EQ(pages.num_free(), 10);
  EXPECT_THROW(kept.keep(4, {1}, PageTable(pages, 2)), InvalidArgument);
}

}  // namespace
}  // namespace heddle::kept_sequences
