#include "fused/piece_attention/head_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/stream.h"
#include "base/thread_pool.h"

namespace heddle {
namespace {

TEST(HeadGroups, EachPieceHasItsHeadsHeadMajorAndJoiningInverts) {
  constexpr int kBatch = 2, kTokens = 5, kHeads = 6, kHeadDim = 3, kGroups = 3, kGroupHeads = kHeads / kGroups;
  std::vector<float> tokens(kBatch * kTokens * kHeads * kHeadDim), back(tokens.size());
  std::iota(tokens.begin(), tokens.end(), 0.0f);
  std::vector<std::vector<float>> pieces(kGroups, std::vector<float>(tokens.size() / kGroups));
  HeadGroups groups{.batch = kBatch, .num_tokens = kTokens, .num_heads = kHeads, .head_dim = kHeadDim, .groups = {}};
  for (auto& piece : pieces) groups.groups.push_back(piece.data());

  ThreadPool pool(2);
  Stream stream(pool);
  split_heads(tokens.data(), groups, stream);
  join_heads(groups, back.data(), stream);
  stream.synchronize();

  for (int b = 0; b < kBatch; ++b)
    for (int t = 0; t < kTokens; ++t)
      for (int h = 0; h < kHeads; ++h)
        for (int d = 0; d < kHeadDim; ++d)
          ASSERT_EQ(pieces[h / kGroupHeads][((b * kGroupHeads + h % kGroupHeads) * kTokens + t) * kHeadDim + d],
                    tokens[((b * kTokens + t) * kHeads + h) * kHeadDim + d]);
  EXPECT_EQ(back, tokens);
}

TEST(HeadGroups, RejectsGroupsThatDoNotDivideTheHeads) {
  ThreadPool pool(1);
  Stream stream(pool);
  float memory[8] = {};
  const HeadGroups groups{.num_tokens = 1, .num_heads = 3, .head_dim = 1, .groups = {memory, memory}};
  EXPECT_THAT([&] { split_heads(memory, groups, stream); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("3 heads do not make 2 equal groups")));
}

}  // namespace
}  // namespace heddle
