// decode_block on the CPU: the operator, and its protocol with a thread for each block of each cluster, against the
// oracle. Under ThreadSanitizer it also shows that barriers and counters alone order all accesses.
#include "fused/decode_block.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/dtype_switch.h"
#include "decode_block_case.h"
#include "device/cluster/cluster_model.h"
#include "device/wait_watch.h"
#include "fused/decode_block_body.cuh"
#include "fused/decode_block_cpu.h"

namespace heddle {
namespace {

constexpr int kSharedVectors = 6000;
struct Shared {
  DecodeBlockBarriers<MbarrierModel> barriers;
  Vector16 memory[kSharedVectors];
};
using Cluster = ClusterModel<Shared>;

// All units at once.
template <class T>
void run_clusters(const DecodeBlockParams& params) {
  using Work = DecodeBlockCpuWork<T, Cluster::Team>;
  const DecodeBlockShape shape = shape_of(params);
  ASSERT_LE(DecodeBlockMemory(shape, sizeof(T)).end, kSharedVectors);
  WaitRecord record;
  const KernelWaits waits = waits_of_test(record);
  {
    std::vector<std::jthread> clusters;
    clusters.reserve(static_cast<std::size_t>(shape.units()));
    for (int unit = 0; unit < shape.units(); ++unit)
      clusters.emplace_back([&, unit] {
        Cluster cluster(shape.mapping.cluster);
        cluster.run([](const Cluster::Team& team, Shared& shared) { shared.barriers.init(team); },
                    [&](const Cluster::Team& team, Shared& shared) {
                      Work work(params, shape, team, unit);
                      team.dawdle();
                      DecodeBlockBody<T, Cluster::Team, MbarrierModel, Work>(team, shape, unit, shared.barriers,
                                                                             shared.memory, work, waits)
                          .run(scratch_of(params), static_cast<float*>(params.partials.data), exchange_of(params));
                    });
      });
  }
  EXPECT_EQ(record.state, WaitRecord::empty) << what_gave_up(record, waits.limit.nanoseconds);
}

void check(const DecodeBlockCase& of, const DecodeBlockOperands& operands, const DecodeBlockResult& expected) {
  expect_close(of, expected, operands.partials, operands.new_residual,
               new_ones(of, operands.cache, operands.cache.keys().floats()),
               new_ones(of, operands.cache, operands.cache.values().floats()));
}

const DecodeBlockCase kCases[] = {
    {.contexts = {1}},
    {.contexts = {2}, .mapping = {.cluster = 4}},
    {.contexts = {37}, .mapping = {.cluster = 2}},
    {.contexts = {37}, .mapping = {.cluster = 2, .merge = DecodeMerge::tree}},
    {.contexts = {50, 1, 9}, .mapping = {.cluster = 4, .parts = 2}, .partials = 2, .bias = true},
    {.contexts = {50, 1, 9},
     .mapping = {.cluster = 4, .parts = 2, .merge = DecodeMerge::tree},
     .partials = 3,
     .deltas = 8,
     .qk_norm = true},
    {.contexts = {33}, .heads = 7, .kv_heads = 1, .mapping = {.cluster = 2, .parts = 2}, .deltas = 0},
    {.contexts = {64, 20, 5}, .window = 16, .mapping = {.cluster = 4}},
    {.contexts = {29, 3},
     .hidden = 128,
     .mapping = {.cluster = 8, .merge = DecodeMerge::tree},
     .qk_norm = true,
     .bias = true,
     .dtype = DType::bfloat16,
     .deltas_dtype = DType::bfloat16},
    {.contexts = {29, 3}, .hidden = 128, .mapping = {.cluster = 8}, .partials = 2, .dtype = DType::float16},
    {.contexts = {40}, .hidden = 128, .heads = 2, .mapping = {.cluster = 16}},
    {.contexts = {40, 6}, .mapping = {.cluster = 4, .norm = DecodeNorm::every_block}, .deltas = 3},
    {.contexts = {33, 2}, .heads = 28, .kv_heads = 4, .mapping = {.cluster = 2, .parts = 2}, .partials = 8},
    {.contexts = {17}, .heads = 40, .kv_heads = 40, .mapping = {.cluster = 2}, .partials = 8},
    {.contexts = {9000}, .heads = 2, .kv_heads = 1, .mapping = {.cluster = 4}},
    {.contexts = {50, 1, 9},
     .mapping = {.cluster = 4, .parts = 2, .exchange = DecodeExchange::off_chip},
     .partials = 2},
    {.contexts = {29},
     .hidden = 128,
     .mapping = {.cluster = 8, .norm = DecodeNorm::every_block, .exchange = DecodeExchange::off_chip},
     .dtype = DType::bfloat16},
};

class DecodeBlock : public testing::TestWithParam<int> {
 protected:
  const DecodeBlockCase& of() const { return kCases[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(Cases, DecodeBlock, testing::Range(0, static_cast<int>(std::size(kCases))));

TEST_P(DecodeBlock, ComputesTheAttentionBlockOnTheCpu) {
  DecodeBlockOperands operands(of());
  const DecodeBlockResult expected = oracle_of(of(), operands);
  const DecodeBlockParams params = operands.params(of());
  on_cpu(2, [&](Stream& stream) { decode_block(params, stream); });
  check(of(), operands, expected);
}

TEST_P(DecodeBlock, ComputesItWithAThreadForEachBlockOfEachCluster) {
  DecodeBlockOperands operands(of());
  const DecodeBlockResult expected = oracle_of(of(), operands);
  const DecodeBlockParams params = operands.params(of());
  for (int call = 0; call < 2; ++call) {  // the second finds the counters as the first left them
    with_element(of().dtype, [&]<class T>() { run_clusters<T>(params); });
    check(of(), operands, expected);
  }
}

TEST(DecodeBlockShape, SaysWhyItDoesNotTakeAShape) {
  const DecodeBlockShape shape{.tokens = 1, .hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 16};
  EXPECT_EQ(why_not_fused(shape, DType::bfloat16, DeviceKind::cpu), "");
  DecodeBlockShape other = shape;
  other.tokens = 17;
  EXPECT_EQ(why_not_fused(other, DType::bfloat16, DeviceKind::cpu), "17 tokens, the fused block takes up to 16");
  other = shape;
  other.mapping.cluster = 3;
  EXPECT_EQ(why_not_fused(other, DType::bfloat16, DeviceKind::cpu), "clusters of 3 blocks, expected 1, 2, 4, 8 or 16");
  other = shape;
  other.mapping.exchange = DecodeExchange::off_chip;
  other.mapping.merge = DecodeMerge::tree;
  EXPECT_EQ(why_not_fused(other, DType::bfloat16, DeviceKind::cpu),
            "exchanges through global memory are of clusters that merge directly");
  other = shape;
  other.mapping.parts = 3;
  EXPECT_EQ(why_not_fused(other, DType::bfloat16, DeviceKind::cpu), "3 parts of 2 query heads that share keys");
  other = shape;
  other.hidden = 72;
  other.mapping.cluster = 2;
  EXPECT_EQ(why_not_fused(other, DType::bfloat16, DeviceKind::cpu),
            "hidden size 72 is not a multiple of 8 for each of 2 blocks");
}

TEST(DecodeBlockParams, AreChecked) {
  const DecodeBlockCase of{.contexts = {3}};
  DecodeBlockOperands operands(of);
  const auto expect = [&](auto change, const std::string& part) {
    DecodeBlockParams params = operands.params(of);
    change(params);
    expect_invalid([&] { on_cpu(1, [&](Stream& stream) { decode_block(params, stream); }); }, part);
  };
  expect([](auto& params) { params.new_residual = params.residual; }, "new_residual overlaps residual");
  expect([](auto& params) { params.num_partials = 9; }, "num_partials is 9, expected 1 to 8");
  expect([](auto& params) { params.num_partials = 3; }, "no more than the 2 units");
  expect([](auto& params) { params.scratch_bytes = 16; }, "has 16 bytes of scratch");
  expect([](auto& params) { params.num_heads = 3; }, "num_heads 3 is not a multiple of num_kv_heads 2");
  expect([](auto& params) { params.kv.dtype = DType::float16; }, "the cache float16: expected the same");
  expect([](auto& params) { params.sequences.max_query_len = 2; }, "expected one each");
  expect([](auto& params) { params.mapping.cluster = 5; }, "clusters of 5 blocks");
}

}  // namespace
}  // namespace heddle
