// decode_block by SplitHead on the CPU: its protocol with a thread for each block of each cluster, against the oracle; its
// traffic against the paper's formula. Under ThreadSanitizer it also shows that barriers and counters alone order all
// accesses.
#include <gtest/gtest.h>

#include <thread>

#include "base/dtype_switch.h"
#include "decode_block_case.h"
#include "device/cluster/cluster_model.h"
#include "device/wait_watch.h"
#include "fused/decode_head_body.cuh"
#include "fused/decode_head_cpu.h"

namespace heddle {
namespace {

constexpr int kHeadSharedVectors = 3000;
struct HeadShared {
  DecodeBlockBarriers<MbarrierModel> barriers;
  Vector16 memory[kHeadSharedVectors];
};
using HeadCluster = ClusterModel<HeadShared>;

// All units at once. The bytes that each cluster pushed.
std::vector<std::int64_t> run_head_clusters(const DecodeBlockParams& params) {
  const DecodeBlockShape shape = shape_of(params);
  WaitRecord record;
  const KernelWaits waits = waits_of_test(record);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(shape.units()));
  with_element(params.qkv.dtype, [&]<class T>() {
    using Team = HeadCluster::Team;
    using Work = DecodeHeadCpuWork<T, Team>;
    EXPECT_LE(DecodeHeadMemory(shape, sizeof(T)).end, kHeadSharedVectors);
    std::vector<std::jthread> clusters;
    clusters.reserve(bytes.size());
    for (int unit = 0; unit < shape.units(); ++unit)
      clusters.emplace_back([&, unit] {
        HeadCluster cluster(shape.mapping.cluster);
        cluster.run([](const Team& team, HeadShared& shared) { shared.barriers.init(team); },
                    [&](const Team& team, HeadShared& shared) {
                      Work work(params, shape, team, unit);
                      team.dawdle();
                      DecodeHeadBody<T, Team, MbarrierModel, Work>(team, shape, unit, shared.barriers, shared.memory,
                                                                   work, waits)
                          .run(scratch_of(params), static_cast<float*>(params.partials.data));
                    });
        bytes[static_cast<std::size_t>(unit)] = cluster.bytes_pushed();
      });
  });
  EXPECT_EQ(record.state, WaitRecord::empty) << what_gave_up(record, waits.limit.nanoseconds);
  return bytes;
}

DecodeBlockMapping split_head(int cluster, int exchanged, int parts = 1) {
  return {.cluster = cluster, .parts = parts, .split = DecodeSplit::head, .exchanged = exchanged};
}

// Contexts of fewer keys than a tile, of whole tiles, and of a few more.
const DecodeBlockCase kHeadCases[] = {
    {.contexts = {1}, .head_dim = 64, .mapping = split_head(2, 64)},
    {.contexts = {37}, .heads = 2, .head_dim = 64, .mapping = split_head(2, 64)},
    {.contexts = {64}, .heads = 2, .head_dim = 128, .mapping = split_head(4, 64), .partials = 2},
    {.contexts = {70}, .heads = 4, .kv_heads = 1, .head_dim = 64, .mapping = split_head(4, 128)},
    {.contexts = {50, 1, 9}, .heads = 2, .head_dim = 128, .mapping = split_head(2, 192), .deltas = 3, .bias = true},
    {.contexts = {97, 3, 24},
     .hidden = 192,
     .heads = 8,
     .head_dim = 64,
     .mapping = split_head(4, 192),
     .partials = 2,
     .bias = true,
     .dtype = DType::bfloat16,
     .deltas_dtype = DType::bfloat16},
    // Units of two heads and of one; the last tile of rows is smaller.
    {.contexts = {33, 20, 2},
     .hidden = 96,
     .heads = 3,
     .kv_heads = 1,
     .head_dim = 128,
     .mapping = split_head(4, 200, 2),
     .dtype = DType::float16},
    {.contexts = {64, 20, 5}, .heads = 4, .head_dim = 64, .window = 16, .mapping = split_head(2, 192)},
    {.contexts = {40}, .head_dim = 16, .mapping = split_head(8, 64)},
};

class DecodeSplitHead : public testing::TestWithParam<int> {
 protected:
  const DecodeBlockCase& of() const { return kHeadCases[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(Cases, DecodeSplitHead, testing::Range(0, static_cast<int>(std::size(kHeadCases))));

// With a thread for each block of each cluster. Clusters push as many bytes as the traffic of their shape says.
TEST_P(DecodeSplitHead, ComputesTheAttentionBlockAndRepeatsItsBits) {
  DecodeBlockOperands operands(of());
  const DecodeBlockResult expected = oracle_of(of(), operands);
  const DecodeBlockParams params = operands.params(of());
  const DecodeHeadPlan plan{shape_of(params)};
  std::vector<std::uint32_t> first;
  for (int call = 0; call < 2; ++call) {  // the second finds the counters as the first left them
    const std::vector<std::int64_t> bytes = run_head_clusters(params);
    expect_close(of(), expected, operands.partials, operands.new_residual,
                 new_ones(of(), operands.cache, operands.cache.keys().floats()),
                 new_ones(of(), operands.cache, operands.cache.values().floats()));
    for (int unit = 0; unit < plan.shape.units(); ++unit) {
      std::int64_t wanted = head_output_traffic_bytes(plan);
      for (int t = 0; t < of().tokens(); ++t)
        wanted += head_score_traffic_bytes(plan, unit, of().contexts[static_cast<std::size_t>(t)] - of().first_key(t));
      EXPECT_EQ(bytes[static_cast<std::size_t>(unit)], wanted) << "cluster " << unit;
    }
    if (call == 0) first = bits(operands.partials);
  }
  EXPECT_EQ(first, bits(operands.partials));
}

TEST(DecodeSplitHeadTraffic, IsThePapersFormula) {
  for (const int cluster : {2, 4, 8, 16}) {
    const DecodeHeadPlan plan{{1, 4096, 32, 32, 128, 8, {.cluster = cluster, .split = DecodeSplit::head}}};
    EXPECT_EQ(head_score_traffic_bytes(plan, 0, 16384) + head_output_traffic_bytes(plan),
              paper_split_head_traffic_bytes(16384, 4096, cluster));
  }
  // Counted as the blocks of one head push.
  const DecodeBlockCase of{.contexts = {40}, .heads = 1, .kv_heads = 1, .head_dim = 64, .mapping = split_head(4, 64)};
  DecodeBlockOperands operands(of);
  EXPECT_EQ(run_head_clusters(operands.params(of)).front(), paper_split_head_traffic_bytes(40, of.hidden, 4));
}

// The pool's threads have clusters of one block.
TEST(DecodeSplitHeadOnTheCpu, IsComputedByOneBlockAUnit) {
  const DecodeBlockCase of{.contexts = {33, 5}, .head_dim = 64, .mapping = split_head(4, 128)};
  DecodeBlockOperands operands(of);
  const DecodeBlockResult expected = oracle_of(of, operands);
  const DecodeBlockParams params = operands.params(of);
  on_cpu(2, [&](Stream& stream) { decode_block(params, stream); });
  expect_close(of, expected, operands.partials, operands.new_residual,
               new_ones(of, operands.cache, operands.cache.keys().floats()),
               new_ones(of, operands.cache, operands.cache.values().floats()));
}

TEST(DecodeSplitHeadShape, SaysWhyItDoesNotTakeAShape) {
  DecodeBlockShape shape{.tokens = 2, .hidden = 128, .heads = 4, .kv_heads = 2, .head_dim = 16};
  shape.mapping = split_head(8, 128);
  EXPECT_EQ(why_not_fused(shape, DType::bfloat16, DeviceKind::cpu), "");
  shape.mapping.cluster = 16;
  EXPECT_EQ(why_not_fused(shape, DType::bfloat16, DeviceKind::cpu),
            "head_dim 16 is not a multiple of 2 for each of 16 blocks");
  shape.mapping = split_head(8, 127);
  EXPECT_EQ(why_not_fused(shape, DType::bfloat16, DeviceKind::cpu),
            "127 floats exchanged at a time, SplitHead takes at least 64 for each of 2 tokens");
  shape.mapping.streamed_blocks = 132;
  EXPECT_EQ(why_not_fused(shape, DType::bfloat16, DeviceKind::cpu), "SplitHead has clusters, not streamed blocks");
}

TEST(DecodeSplitHeadParams, HaveNoNormsOfQueriesAndKeys) {
  const DecodeBlockCase of{.contexts = {3}, .mapping = split_head(2, 64), .qk_norm = true};
  DecodeBlockOperands operands(of);
  const DecodeBlockParams params = operands.params(of);
  expect_invalid([&] { on_cpu(1, [&](Stream& stream) { decode_block(params, stream); }); },
                 "SplitHead has only slices of them");
}

}  // namespace
}  // namespace heddle
