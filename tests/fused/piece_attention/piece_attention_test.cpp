#include "fused/piece_attention/piece_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/stream.h"
#include "base/thread_pool.h"
#include "fused/piece_attention/piece_case.h"

namespace heddle {
namespace {

const PieceCase kCases[] = {
    {1, 1, 1, 32, {1}, {1}},                             // one key: y is its value
    {1, 2, 2, 64, {5, 1, 40}, {70, 3}},                  // fewer and more rows than transposing pays for
    {2, 3, 3, 128, {64, 65}, {128, 129, 1}},             // around a tile of rows and a block of keys
    {2, 4, 2, 64, {33, 0, 17}, {0, 200, 0, 31}},         // GQA; pieces without tokens
    {1, 2, 2, 24, {10}, {100}},                          // a head_dim that fills no register
    {1, 2, 1, 256, {20}, {130}},                         // the largest
    {1, 2, 2, 64, {30, 40}, {30, 40}, DType::bfloat16},  //
    {2, 2, 2, 128, {70}, {140, 9}, DType::bfloat16},     //
    {1, 2, 2, 64, {30, 40}, {30, 140}, DType::float16},  //
    {1, 2, 2, 32, {30, 130, 7}, {30, 130, 7}, DType::float32, PieceMask::causal},
    {1, 4, 2, 64, {100, 57}, {100, 57}, DType::bfloat16, PieceMask::causal},
    {1, 2, 2, 32, {50}, {300}, DType::float32, PieceMask::full, 1e3f},    // all weight on one key
    {1, 2, 2, 32, {50}, {300}, DType::float32, PieceMask::full, 1e-30f},  // equal weights
};

void run(const PieceLayout& layout, const PieceOperands& operands, PieceStart start, PieceEnd end, int threads = 2) {
  ThreadPool pool(threads);
  Stream stream(pool);
  piece_attention({&layout, operands.scale, start, end, operands.of.mask}, stream);
  stream.synchronize();
}

std::vector<std::byte> in_one_call(const PieceOperands& operands, int threads = 2) {
  PieceMemory memory(operands);
  run(memory.layout(operands.of), operands, PieceStart::fresh, PieceEnd::finalise, threads);
  return memory.y;
}

class PieceAttention : public testing::TestWithParam<PieceCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, PieceAttention, testing::ValuesIn(kCases));

TEST_P(PieceAttention, MatchesFloat64InOneCall) {
  const PieceOperands operands(GetParam());
  PieceMemory memory(operands);
  run(memory.layout(operands.of), operands, PieceStart::fresh, PieceEnd::finalise);
  EXPECT_EQ(first_miss(operands, memory.output(operands.of.dtype)), "");
}

TEST_P(PieceAttention, CarriedOverACallForEachPieceGivesTheBitsOfOneCall) {
  const PieceOperands operands(GetParam());
  PieceMemory memory(operands);
  for (std::size_t i = 0; i < memory.keys_values.size(); ++i) {
    const PieceLayout layout(PieceMemory::shape(operands.of), memory.queries, {memory.keys_values[i]});
    run(layout, operands, i == 0 ? PieceStart::fresh : PieceStart::carried,
        i + 1 < memory.keys_values.size() ? PieceEnd::carry : PieceEnd::finalise);
  }
  EXPECT_EQ(memory.y, in_one_call(operands));
}

TEST_P(PieceAttention, AQueryPieceInACallOfItsOwnGivesTheBitsOfOneCall) {
  const PieceOperands operands(GetParam());
  PieceMemory memory(operands);
  for (const QueryPiece& piece : memory.queries)
    run({PieceMemory::shape(operands.of), {piece}, memory.keys_values}, operands, PieceStart::fresh,
        PieceEnd::finalise);
  EXPECT_EQ(memory.y, in_one_call(operands));
}

TEST_P(PieceAttention, HeadMajorPiecesGiveTheBitsOfTokenMajorOnes) {
  const PieceOperands operands(GetParam());
  const PieceCase& of = operands.of;
  if (of.dtype != DType::float32) GTEST_SKIP() << "strides do not depend on the dtype";
  PieceMemory memory(operands);
  std::vector<std::vector<float>> moved;
  const auto move = [&](const void* from, const PieceStrides& strides, int heads, int tokens) {
    std::vector<float> piece(static_cast<std::size_t>(of.batch) * heads * tokens * of.head_dim + 1);
    const PieceStrides to = head_major(heads, tokens, of.head_dim);
    for (int b = 0; b < of.batch; ++b)
      for (int h = 0; h < heads; ++h)
        for (int t = 0; t < tokens; ++t)
          std::copy_n(static_cast<const float*>(from) + b * strides.batch + h * strides.head + t * strides.token,
                      of.head_dim, piece.data() + b * to.batch + h * to.head + t * to.token);
    moved.push_back(std::move(piece));
    return moved.back().data();
  };
  for (QueryPiece& piece : memory.queries) {
    piece.q = move(piece.q, piece.q_strides, of.num_heads, piece.num_tokens);
    piece.q_strides = head_major(of.num_heads, piece.num_tokens, of.head_dim);
  }
  for (KeyValuePiece& piece : memory.keys_values) {
    piece.k = move(piece.k, piece.strides, of.num_kv_heads, piece.num_tokens);
    piece.v = move(piece.v, piece.strides, of.num_kv_heads, piece.num_tokens);
    piece.strides = head_major(of.num_kv_heads, piece.num_tokens, of.head_dim);
  }
  run(memory.layout(of), operands, PieceStart::fresh, PieceEnd::finalise);
  EXPECT_EQ(memory.y, in_one_call(operands));
}

TEST_P(PieceAttention, ThreadsChangeNoBit) {
  const PieceOperands operands(GetParam());
  EXPECT_EQ(in_one_call(operands, 1), in_one_call(operands, 3));
}

TEST(PieceAttention, AQueryThatSawNoKeyGetsZeros) {
  const PieceOperands operands({1, 1, 1, 32, {3}, {4}, DType::float32, PieceMask::causal});
  PieceMemory memory(operands);
  for (KeyValuePiece& piece : memory.keys_values) piece.first_position = 2;  // queries 0 and 1 are before all keys
  run(memory.layout(operands.of), operands, PieceStart::fresh, PieceEnd::carry);
  EXPECT_EQ(memory.m[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(memory.l[1], 0);
  const PieceLayout rest(PieceMemory::shape(operands.of), memory.queries, {});
  run(rest, operands, PieceStart::carried, PieceEnd::finalise);
  const std::vector<float> y = memory.output(DType::float32);
  EXPECT_THAT(std::vector<float>(y.begin(), y.begin() + 64), testing::Each(0.0f));
  EXPECT_NE(y[64], 0);
}

TEST(PieceLayout, ATileLiesInOnePieceAndTheTilesCoverEachPieceOnce) {
  float memory = 0;
  std::vector<QueryPiece> queries;
  for (const int tokens : {0, 1, 64, 0, 0, 65, 200, 0}) {
    QueryPiece piece{.q = &memory, .q_strides = {}, .y = nullptr, .y_strides = {}};
    piece.o = piece.l = piece.m = &memory;
    piece.num_tokens = tokens;
    queries.push_back(piece);
  }
  const PieceLayout layout({1, 1, 1, 8, DType::float32}, queries, {});
  std::vector<int> covered(queries.size());
  for (std::int64_t i = 0; i < layout.num_tiles(); ++i) {
    const PieceTile tile = layout.tile(i);
    EXPECT_EQ(tile.first_token, covered[tile.piece]);
    EXPECT_GT(tile.num_tokens, 0);
    covered[tile.piece] += tile.num_tokens;
  }
  for (std::size_t i = 0; i < queries.size(); ++i) EXPECT_EQ(covered[i], queries[i].num_tokens);
}

TEST(PieceAttention, RejectsWhatDoesNotFitWithTheReason) {
  float memory[8] = {};
  QueryPiece query{.q = memory, .q_strides = {}, .y = nullptr, .y_strides = {}};
  query.num_tokens = 1;
  const PieceShape shape{1, 2, 2, 4, DType::float32};
  const auto rejects = [](const auto& call, const char* why) {
    EXPECT_THAT(call, testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(why)));
  };
  rejects([&] { PieceLayout(shape, {query}, {}); }, "query piece 0 has a null q, o, l or m");
  rejects([&] { PieceLayout({1, 3, 2, 4, DType::float32}, {}, {}); }, "num_heads 3 is not a multiple");
  rejects([&] { PieceLayout({1, 1, 1, 257, DType::float32}, {}, {}); }, "head_dim is 257");
  rejects([&] { PieceLayout(shape, {}, {{nullptr, memory, {}, 1, 0}}); }, "key/value piece 0 has a null k or v");
  query.o = query.l = query.m = memory;
  const PieceLayout layout(shape, {query}, {});
  ThreadPool pool(1);
  Stream stream(pool);
  rejects([&] { piece_attention({.layout = &layout}, stream); }, "query piece 0 is finalised and has a null y");
  rejects([&] { piece_attention({}, stream); }, "layout is null");
}

}  // namespace
}  // namespace heddle
