// How `linear` chooses among its implementations on the CPU and cuts rows into pieces: on every machine alike.
#include "kernels/linear/linear_cpu.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "kernels/linear/linear_tiles.h"

namespace heddle {
namespace {

constexpr LinearCpuLoops kVectors = LinearCpuLoops::vectors, kPairDots = LinearCpuLoops::pair_dots,
                         kTiles = LinearCpuLoops::tiles;

TEST(LinearCpu, TakesTilesThenPairDotsThatPayThenVectors) {
  struct {
    LinearCpuMachine machine;
    LinearCpuLoops for_bfloat16;
  } const cases[] = {
      {{}, kVectors},
      {{.avx512 = true}, kVectors},
      {{.avx512 = true, .tiles = true}, kTiles},
      {{.avx512 = true, .tiles = true, .pair_dots = true, .pair_dots_pay = true}, kTiles},
      {{.avx512 = true, .pair_dots = true, .pair_dots_pay = true}, kPairDots},
      {{.avx512 = true, .pair_dots = true}, kVectors},      // Intel's, where they are slow
      {{.avx512 = true, .pair_dots_pay = true}, kVectors},  // AMD's before Zen 4
      // A test has chosen another instruction set.
      {{.tiles = true, .pair_dots = true, .pair_dots_pay = true}, kVectors},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(fmt::format("case {}", &c - cases));
    EXPECT_EQ(loops_for(c.machine, DType::bfloat16), c.for_bfloat16);
    EXPECT_EQ(loops_for(c.machine, DType::float32), kVectors);
    for (const DType x : {DType::bfloat16, DType::float32})
      EXPECT_TRUE(can_run(c.machine, loops_for(c.machine, x), x)) << name_of(x);
  }
}

TEST(LinearCpu, RunsPairDotsWhereTheyDoNotPay) {
  const LinearCpuMachine machine{.avx512 = true, .pair_dots = true};
  EXPECT_TRUE(can_run(machine, kPairDots, DType::bfloat16));
  EXPECT_FALSE(can_run(machine, kTiles, DType::bfloat16));
  EXPECT_FALSE(can_run(machine, kPairDots, DType::float32));
  EXPECT_FALSE(can_run({.pair_dots = true, .pair_dots_pay = true}, kPairDots, DType::bfloat16));
  EXPECT_TRUE(can_run({}, kVectors, DType::bfloat16));
}

LinearParams params_of(std::int64_t num_tokens, std::int64_t out_features, std::int64_t in_features) {
  LinearParams params;
  params.x = {.rows = num_tokens, .columns = in_features, .row_stride = in_features};
  params.weight.out_features = out_features;
  params.weight.in_features = in_features;
  return params;
}

// When the slowest of the threads is done, which take pieces of `rows` in turn, and a fifth of a piece beyond that.
std::int64_t cost_of(std::int64_t num_rows, std::int64_t rows, std::int64_t rows_to_begin, int num_threads) {
  std::vector<std::int64_t> busy(static_cast<std::size_t>(num_threads), 0);
  std::size_t thread = 0;
  for (std::int64_t row = 0; row < num_rows; row += rows) {
    busy[thread] += rows + rows_to_begin;
    thread = (thread + 1) % busy.size();
  }
  return 5 * *std::ranges::max_element(busy) + rows;
}

TEST(LinearCpu, GivesManyTokensPiecesWithWhichTheSlowestThreadIsDoneFirst) {
  // Depths so large that the least piece that pays for being handed out is one multiple.
  for (const auto loops : {kVectors, kPairDots, kTiles})
    for (const std::int64_t num_rows : {1, 23, 24, 25, 300, 1000, 4096, 4097, 14336})
      for (const int threads : {1, 2, 3, 8, 61}) {
        SCOPED_TRACE(fmt::format("{} rows, {} threads, loops {}", num_rows, threads, static_cast<int>(loops)));
        const bool on_tiles = loops == kTiles;
        const std::int64_t multiple = on_tiles ? kRowsOnTiles : kRowsOfFew / 2, to_begin = on_tiles ? 64 : 4;
        std::int64_t best = multiple;
        for (std::int64_t rows = multiple; rows <= 256; rows += multiple)
          if (cost_of(num_rows, rows, to_begin, threads) < cost_of(num_rows, best, to_begin, threads)) best = rows;
        const std::int64_t least = on_tiles ? kRowsOnTiles : kRowsOfFew;
        const ThreadPool::PieceSizes sizes = pieces_for(params_of(64, num_rows, 65536), loops, threads);
        EXPECT_EQ(sizes.most, std::max(least, best));
        EXPECT_EQ(sizes.least, sizes.most);
      }
}

TEST(LinearCpu, GivesFewTokensPiecesThatBecomeSmall) {
  const auto sizes = [](std::int64_t num_tokens, LinearCpuLoops loops) {
    return pieces_for(params_of(num_tokens, 4096, 4096), loops, 4);
  };
  for (const auto loops : {kVectors, kPairDots, kTiles}) {
    EXPECT_EQ(sizes(1, loops).most, 4096);
    EXPECT_EQ(sizes(kFewestTokensToPackRows - 1, loops).most, 4096);
    EXPECT_LE(sizes(kFewestTokensToPackRows, loops).most, 256);
  }
  // 65536 elements of W and four tokens' x at least, and whole strips or tiles.
  EXPECT_EQ(sizes(1, kVectors).least, 24);
  EXPECT_EQ(sizes(1, kTiles).least, 32);
  EXPECT_EQ(pieces_for(params_of(4, 4096, 512), kVectors, 4).least, 144);
  EXPECT_EQ(pieces_for(params_of(5, 4096, 512), kVectors, 4).least, 72);
  EXPECT_EQ(pieces_for(params_of(4, 4096, 512), kTiles, 4).least, 128);
  EXPECT_EQ(pieces_for(params_of(1, 3, 8), kVectors, 4).most, 8208);  // fewer rows than the least piece
}

}  // namespace
}  // namespace heddle
