#include "base/tensor.h"

#include <gtest/gtest.h>

#include "base/weight.h"

namespace heddle {
namespace {

TEST(RowsAreAligned, WhereTheFirstAndTheStrideAre) {
  alignas(32) std::byte memory[64];
  struct Case {
    std::size_t offset;
    std::int64_t stride;
    DType dtype;
    std::size_t bytes;
    bool aligned;
  };
  const Case cases[] = {
      {0, 8, DType::bfloat16, 16, true},   {16, 24, DType::bfloat16, 16, true}, {2, 8, DType::bfloat16, 16, false},
      {0, 12, DType::bfloat16, 16, false}, {0, 12, DType::float32, 16, true},  // 48 bytes
      {0, 12, DType::float32, 32, false},  {8, 12, DType::bfloat16, 8, true},   {4, 12, DType::bfloat16, 8, false},
      {0, 0, DType::float32, 16, true},    {4, 0, DType::float32, 16, false},  // one row, again and again
  };
  for (const Case& of : cases) {
    const Tensor rows{memory + of.offset, 2, 4, of.stride, of.dtype};
    EXPECT_EQ(rows_are_aligned(rows, of.bytes), of.aligned) << of.offset << " " << of.stride << " " << of.bytes;
  }
}

TEST(RowsAreAligned, InEveryBlockOfAWeightThatHasRows) {
  alignas(16) std::byte memory[64];
  Weight weight{.blocks = {{{memory, 1}, {memory + 16, 1}, {memory + 2, 0}}},
                .out_features = 2,
                .in_features = 8,
                .dtype = DType::bfloat16};
  EXPECT_TRUE(rows_are_aligned(weight));
  weight.blocks[1].data = memory + 18;
  EXPECT_FALSE(rows_are_aligned(weight));
  weight.blocks[1].data = memory + 24;
  weight.in_features = 4;
  EXPECT_FALSE(rows_are_aligned(weight));
}

}  // namespace
}  // namespace heddle
