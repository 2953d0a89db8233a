// Pages shared by what they hold: the same tokens, sooner, for one owner alone.
#include "engine/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "engine/engine.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle::prefix_cache {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr int kPage = 4;

Tokens counting(int first, int count) {
  Tokens tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// A sequence of these tokens, computed and added.
PrefixCache::Chain add(PrefixCache& cache, PageAllocator& pages, const Tokens& tokens, std::uint64_t owner = 0) {
  PageTable table(pages, kPage);
  std::vector<PageCopy> copies;
  EXPECT_TRUE(table.grow(static_cast<int>(tokens.size()), copies));
  PrefixCache::Chain chain;
  cache.add(owner, tokens, table, chain);
  return chain;
}

int found(PrefixCache& cache, const Tokens& tokens, std::uint64_t owner = 0, int most = 1000) {
  PrefixCache::Chain chain;
  return cache.longest_prefix(owner, tokens, most, chain).length();
}

TEST(PrefixCache, FindsWholePagesOfTheSameTokensAndOwner) {
  PageAllocator pages(16);
  PrefixCache cache(pages, kPage);
  add(cache, pages, counting(0, 11));  // two full pages; the third belongs to nobody afterwards
  EXPECT_EQ(cache.num_pages(), 2);
  EXPECT_EQ(pages.num_free(), 14);
  EXPECT_EQ(found(cache, counting(0, 20)), 8);
  EXPECT_EQ(found(cache, counting(0, 20), 0, 7), 4);
  EXPECT_EQ(found(cache, counting(0, 20), 1), 0);
  EXPECT_EQ(found(cache, counting(1, 20)), 0);
  Tokens second_differs = counting(0, 8);
  second_differs[5] = 99;
  EXPECT_EQ(found(cache, second_differs), 4);
  EXPECT_EQ(found(cache, counting(4, 8)), 0);  // the second page alone begins no text
}

TEST(PrefixCache, KeepsOnePageForEqualTexts) {
  PageAllocator pages(16);
  PrefixCache cache(pages, kPage);
  add(cache, pages, counting(0, 8));
  add(cache, pages, counting(0, 12));
  EXPECT_EQ(cache.num_pages(), 3);
  EXPECT_EQ(found(cache, counting(0, 12)), 12);
}

TEST(PrefixCache, GivesWayInOrderOfUseAndNeverWhatASequenceShares) {
  PageAllocator pages(16);
  PrefixCache cache(pages, kPage);
  add(cache, pages, counting(0, 8));
  add(cache, pages, counting(100, 4));
  PrefixCache::Chain chain;
  const PageTable used = cache.longest_prefix(0, counting(100, 4), 4, chain);
  EXPECT_EQ(found(cache, counting(0, 8)), 8);  // now the ends of texts go first
  EXPECT_TRUE(cache.give_way());
  EXPECT_EQ(found(cache, counting(0, 8)), 4);
  EXPECT_TRUE(cache.give_way());
  EXPECT_FALSE(cache.give_way());  // `used` shares the last
  EXPECT_EQ(cache.num_idle_pages(), 0);
  EXPECT_EQ(found(cache, counting(100, 4)), 4);
}

TEST(PrefixCache, AddsNothingBehindAPageThatItHasLost) {
  PageAllocator pages(16);
  PrefixCache cache(pages, kPage);
  auto chain = add(cache, pages, counting(0, 4));
  cache.clear();
  PageTable table(pages, kPage);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(table.grow(8, copies));
  cache.add(0, counting(0, 8), table, chain);
  EXPECT_EQ(cache.num_pages(), 0);
}

Engine make_engine(EngineOptions options) {
  options.page_size = kPage;
  options.prefix_cache = true;
  const auto folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/gqa";
  return Engine(load_model(Checkpoint(folder), {}), options);
}

struct Done {
  std::map<std::int64_t, Tokens> answers;
  std::vector<std::int64_t> ended;  // ids in order
  int num_prompt_tokens = 0;
};

Done run_all(Engine& engine) {
  Done run;
  while (!engine.idle()) {
    for (const TokenOutput& output : engine.step()) {
      run.answers[output.request].push_back(output.token);
      if (output.finish) run.ended.push_back(output.request);
    }
    run.num_prompt_tokens += engine.last_step().num_prompt_tokens;
  }
  return run;
}

Request request(Tokens prompt, std::uint64_t seed = 3, std::uint64_t owner = 0) {
  return {.prompt = std::move(prompt), .sampling = {.temperature = 0.9, .seed = seed}, .max_tokens = 8, .owner = owner};
}

TEST(EnginePrefixCache, ComputesASharedPrefixOnceWithTheSameTokens) {
  for (const Overlap overlap : {Overlap::off, Overlap::on}) {
    Engine engine = make_engine({.overlap = overlap});
    const auto first = engine.submit(request(counting(0, 21)));
    const Done one = run_all(engine);
    EXPECT_EQ(one.num_prompt_tokens, 21);
    const auto second = engine.submit(request(counting(0, 21)));
    const Done two = run_all(engine);
    EXPECT_EQ(two.num_prompt_tokens, 1);
    EXPECT_EQ(two.answers.at(second), one.answers.at(first));
    engine.submit(request(counting(0, 21), 3, 1));
    EXPECT_EQ(run_all(engine).num_prompt_tokens, 21);  // another owner's
    EXPECT_EQ(engine.status().num_free_pages + engine.status().num_cached_pages, engine.status().num_pages);
  }
}

TEST(EnginePrefixCache, SamplesOfOnePromptShareItsPages) {
  for (const Overlap overlap : {Overlap::off, Overlap::on}) {
    Engine engine = make_engine({.overlap = overlap});
    std::map<std::int64_t, Tokens> lone;
    for (int sample = 0; sample < 4; ++sample) {
      Engine fresh = make_engine({.overlap = overlap});
      fresh.submit(request(counting(0, 22), static_cast<std::uint64_t>(sample)));
      lone[sample] = run_all(fresh).answers.at(0);
    }
    for (int sample = 0; sample < 4; ++sample) {
      Request each = request(counting(0, 22), static_cast<std::uint64_t>(sample));
      if (sample > 0) each.same_prompt_as = 0;
      engine.submit(std::move(each));
    }
    const Done forked = run_all(engine);
    EXPECT_EQ(forked.num_prompt_tokens, 22 + 3);  // the last token of each
    EXPECT_EQ(forked.answers, lone);
  }
}

TEST(EnginePrefixCache, PagesRunShortWithoutLossOrLeak) {
  constexpr std::int64_t kPageBytes = 2 * 3 * 4 * 2 * 24 * 4;
  Engine roomy = make_engine({.max_sequences = 8});
  Engine tight = make_engine({.max_sequences = 8, .kv_bytes = 14 * kPageBytes});
  for (Engine* engine : {&roomy, &tight})
    for (int i = 0; i < 12; ++i)
      engine->submit(request(counting(i % 3, 17), static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(i % 2)));
  EXPECT_EQ(run_all(tight).answers, run_all(roomy).answers);
  EXPECT_EQ(tight.status().num_free_pages + tight.status().num_cached_pages, tight.status().num_pages);
}

TEST(EngineFairness, OwnersTakeTurns) {
  Engine engine = make_engine({.max_sequences = 1});
  for (int i = 0; i < 6; ++i) engine.submit(request(counting(i, 9), 1, 1));  // a crowd, and then one more
  const auto last = engine.submit(request(counting(50, 9), 1, 2));
  const Done done = run_all(engine);
  EXPECT_LE(std::ranges::find(done.ended, last) - done.ended.begin(), 1);
}

TEST(EngineMinTokens, HoldsBackStopTokensUntilThen) {
  Engine engine = make_engine({});
  const auto free_run = engine.submit(request(counting(0, 9)));
  const Tokens all = run_all(engine).answers.at(free_run);
  Request stopped = request(counting(0, 9));
  stopped.stop_ids = {all[1]};
  const auto short_id = engine.submit(stopped);
  EXPECT_EQ(run_all(engine).answers.at(short_id).size(), 2U);
  stopped.min_tokens = 5;
  const auto long_id = engine.submit(stopped);
  const Tokens held = run_all(engine).answers.at(long_id);
  EXPECT_GE(held.size(), 5U);
  for (std::size_t i = 0; i + 1 < 5; ++i) EXPECT_NE(held[i], all[1]);
}

}  // namespace
}  // namespace heddle::prefix_cache
