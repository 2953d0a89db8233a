#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const int count : {0, 1, 2, 7, 64, 1000})
      for (const int grain : {1, 3, 64, 5000}) {
        std::vector<int> touched(static_cast<std::size_t>(count), 0);
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          EXPECT_LE(end - begin, grain);
          for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
        });
        EXPECT_EQ(std::accumulate(touched.begin(), touched.end(), 0), count);
        for (const int times : touched) EXPECT_EQ(times, 1);
      }
  }
}

TEST(ThreadPool, PiecesShrinkTowardsTheEnd) {
  constexpr std::int64_t kCount = 1000, kLeast = 8;
  ThreadPool pool(2);
  for (const std::int64_t most : {kLeast, std::int64_t{100}, kCount}) {
    std::vector<std::int64_t> size_at(kCount, 0);
    pool.parallel_for(kCount, {most, kLeast}, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        EXPECT_EQ(size_at[static_cast<std::size_t>(i)], 0);
        size_at[static_cast<std::size_t>(i)] = end - begin;
      }
    });
    EXPECT_EQ(size_at.front(), most == kLeast ? kLeast : most == kCount ? 248 : 100);  // of a quarter, whole eights
    for (std::size_t i = 1; i < kCount; ++i) EXPECT_LE(size_at[i], size_at[i - 1]);
    EXPECT_GE(size_at.back(), 1);
    for (const std::int64_t size : size_at) EXPECT_LE(size, most);
  }
}

TEST(ThreadPool, ServesSeveralCallersAtOnce) {
  ThreadPool pool(3);
  std::vector<std::jthread> callers;
  std::atomic<std::int64_t> sum{0};
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round)
        pool.parallel_for(50, 1, [&](std::int64_t begin, std::int64_t) { sum += begin; });
    });
  callers.clear();
  EXPECT_EQ(sum, std::int64_t{4} * 200 * (50 * 49 / 2));
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.parallel_for(100, 1,
                                   [](std::int64_t begin, std::int64_t) {
                                     if (begin % 10 == 3) throw std::runtime_error("piece");
                                   }),
                 std::runtime_error);
    std::atomic<int> pieces{0};
    pool.parallel_for(100, 1, [&](std::int64_t, std::int64_t) { ++pieces; });
    EXPECT_EQ(pieces, 100);
  }
}

TEST(ThreadPool, RefusesAbsurdSizes) {
  EXPECT_THROW(ThreadPool(0), InvalidArgument);
  EXPECT_THROW(ThreadPool(-1), InvalidArgument);
  ThreadPool pool(2);
  EXPECT_THROW(pool.parallel_for(1, 0, [](std::int64_t, std::int64_t) {}), InvalidArgument);
  EXPECT_THROW(pool.parallel_for(1, {2, 3}, [](std::int64_t, std::int64_t) {}), InvalidArgument);
}

}  // namespace
}  // namespace heddle
