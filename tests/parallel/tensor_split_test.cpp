#include "parallel/tensor_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr SplitSizes kSizes[] = {
    {.num_heads = 32, .num_kv_heads = 8, .intermediate = 14336, .vocab_size = 128256},
    {.num_heads = 28, .num_kv_heads = 4, .intermediate = 18944, .vocab_size = 152064},  // 7 heads of a KV head
    {.num_heads = 6, .num_kv_heads = 2, .intermediate = 112, .vocab_size = 331},        // a prime vocabulary
    {.num_heads = 16, .num_kv_heads = 1, .intermediate = 100, .vocab_size = 257},
    {.num_heads = 5, .num_kv_heads = 5, .intermediate = 7, .vocab_size = 11},
};

std::vector<TensorSplit> all_ranks(const SplitSizes& sizes, int ranks) {
  std::vector<TensorSplit> splits;
  for (int rank = 0; rank < ranks; ++rank) splits.push_back(tensor_split(sizes, rank, ranks));
  return splits;
}

// Whether the slices follow each other, none empty, and end at `count`.
void expect_cover(const std::vector<TensorSplit>& splits, Slice TensorSplit::*slice, std::int64_t count) {
  std::int64_t end = 0;
  for (const TensorSplit& split : splits) {
    EXPECT_EQ((split.*slice).first, end);
    EXPECT_GE((split.*slice).count, 1);
    end = (split.*slice).end();
  }
  EXPECT_EQ(end, count);
}

TEST(TensorSplit, EveryHeadFeatureAndTokenHasOneOwner) {
  for (const SplitSizes& sizes : kSizes)
    for (int ranks = 1; ranks <= std::min<std::int64_t>(sizes.num_heads, sizes.intermediate); ++ranks) {
      SCOPED_TRACE(testing::Message() << sizes.num_heads << " heads on " << ranks << " ranks");
      const auto splits = all_ranks(sizes, ranks);
      expect_cover(splits, &TensorSplit::heads, sizes.num_heads);
      expect_cover(splits, &TensorSplit::intermediate, sizes.intermediate);
      expect_cover(splits, &TensorSplit::vocabulary, sizes.vocab_size);
    }
}

// Attention maps query head h of a rank to KV head h / (heads / kv_heads) of that rank: it must be the model's own.
TEST(TensorSplit, EachQueryHeadFindsItsKvHeadOnItsRank) {
  for (const SplitSizes& sizes : kSizes)
    for (int ranks = 1; ranks <= std::min<std::int64_t>(sizes.num_heads, sizes.intermediate); ++ranks)
      for (const TensorSplit& split : all_ranks(sizes, ranks)) {
        ASSERT_EQ(split.heads.count % split.kv_heads.count, 0);
        const std::int64_t here = split.heads.count / split.kv_heads.count;
        const std::int64_t there = sizes.num_heads / sizes.num_kv_heads;
        for (std::int64_t head = 0; head < split.heads.count; ++head)
          EXPECT_EQ(split.kv_heads.first + head / here, (split.heads.first + head) / there)
              << sizes.num_heads << " heads on " << ranks << " ranks, rank " << split.rank << ", head " << head;
      }
}

TEST(TensorSplit, RanksShareAKvHeadOnlyWhereThereAreMoreRanks) {
  for (const TensorSplit& split : all_ranks(kSizes[1], 3)) EXPECT_EQ(split.heads.count, 7 * split.kv_heads.count);
  const auto eight = all_ranks(kSizes[1], 8);
  EXPECT_EQ(eight[0].heads, (Slice{0, 4}));
  EXPECT_EQ(eight[1].heads, (Slice{4, 3}));
  EXPECT_EQ(eight[1].kv_heads, (Slice{0, 1}));
  EXPECT_EQ(eight[7].heads, (Slice{25, 3}));
  EXPECT_EQ(eight[7].kv_heads, (Slice{3, 1}));
}

TEST(TensorSplit, FeaturesComeInWholeRunsWhereThereAreMany) {
  for (const TensorSplit& split : all_ranks(kSizes[0], 3)) EXPECT_EQ(split.intermediate.first % 64, 0);
  EXPECT_EQ(tensor_split(kSizes[0], 0, 2).intermediate.count, 14336 / 2);
}

TEST(TensorSplit, OneRankAddsTheBiasOfASum) {
  int adding = 0;
  for (const TensorSplit& split : all_ranks(kSizes[0], 4)) adding += split.adds_biases_of_sums() ? 1 : 0;
  EXPECT_EQ(adding, 1);
}

std::string error_of(const SplitSizes& sizes, int ranks) {
  try {
    tensor_split(sizes, 0, ranks);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TensorSplit, ARankWithoutAPieceIsAnErrorThatSaysHowManyFit) {
  EXPECT_THAT(error_of(kSizes[2], 7),
              AllOf(HasSubstr("7 ranks"), HasSubstr("6 attention heads"), HasSubstr("6 ranks at most")));
  EXPECT_THAT(error_of({.num_heads = 8, .num_kv_heads = 8, .intermediate = 7, .vocab_size = 100}, 8),
              HasSubstr("7 ranks at most"));
  EXPECT_THAT(error_of({.num_heads = 8, .num_kv_heads = 8, .intermediate = 8, .vocab_size = 5}, 6),
              HasSubstr("5 ranks at most"));
  EXPECT_THROW(tensor_split(kSizes[0], 2, 2), InvalidArgument);
  EXPECT_THROW(tensor_split(kSizes[0], 0, 0), InvalidArgument);
}

}  // namespace
}  // namespace heddle
