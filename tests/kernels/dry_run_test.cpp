// On the lane of a dry run each operator checks its params, tells them and enqueues nothing: there is neither memory nor,
// here, a GPU.
#include "kernels/dry_run.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/stand_in.h"

namespace heddle {
namespace {

constexpr int kDryTokens = 3, kDryHeads = 4, kDryKvHeads = 2, kDryHeadDim = 8;

Tensor stand_in_tensor(std::int64_t rows, std::int64_t columns) {
  return {stand_in_memory(), rows, columns, columns, DType::float32};
}

Weight stand_in_weight(std::int64_t out_features, std::int64_t in_features) {
  Weight weight{.out_features = out_features, .in_features = in_features};
  weight.blocks[0] = {stand_in_memory(), out_features};
  return weight;
}

template <class T>
T* stand_in_array() {
  return reinterpret_cast<T*>(stand_in_memory());
}

class DryRunOf : public testing::TestWithParam<DeviceKind> {
 protected:
  DryRunOf()
      : kv_{.keys = stand_in_memory(),
            .values = stand_in_memory(),
            .num_kv_heads = kDryKvHeads,
            .page_size = 4,
            .head_dim = kDryHeadDim},
        sequences_{.query_start = stand_in_array<std::int32_t>(),
                   .context_len = stand_in_array<std::int32_t>(),
                   .page_table = stand_in_array<std::int32_t>(),
                   .num_sequences = 1,
                   .page_table_stride = 1,
                   .max_query_len = kDryTokens} {}

  bool on_gpu() const { return GetParam() == DeviceKind::cuda; }

  template <class Params>
  void expect_last(std::size_t num_calls) {
    ASSERT_EQ(run_.calls().size(), num_calls);
    EXPECT_TRUE(std::holds_alternative<Params>(run_.calls().back())) << run_.calls().back().index();
  }

  DryRun run_{{GetParam(), 0}};
  Lane lane_ = run_.lane();
  PagedKv kv_;
  PagedSequences sequences_;
  Tensor q_ = stand_in_tensor(kDryTokens, kDryHeads*kDryHeadDim),
         k_ = stand_in_tensor(kDryTokens, kDryKvHeads*kDryHeadDim);
  Tensor x_ = stand_in_tensor(kDryTokens, 16), y_ = stand_in_tensor(kDryTokens, 16);
};

TEST_P(DryRunOf, OperatorsOfRows) {
  embedding({.table = stand_in_weight(100, 16), .tokens = stand_in_array<std::int32_t>(), .y = y_}, lane_);
  expect_last<EmbeddingParams>(1);
  gather_rows({.x = x_, .rows = stand_in_array<std::int32_t>(), .y = stand_in_tensor(1, 16)}, lane_);
  expect_last<GatherRowsParams>(2);
  rmsnorm({.x = x_, .weight = stand_in_memory(), .y = y_}, lane_);
  expect_last<RmsNormParams>(3);
  swiglu({.gate_up = stand_in_tensor(kDryTokens, 32), .y = y_}, lane_);
  expect_last<SwigluParams>(4);
}

TEST_P(DryRunOf, Products) {
  linear({.x = x_, .weight = stand_in_weight(24, 16), .y = stand_in_tensor(kDryTokens, 24), .role = LinearRole::down},
         lane_);
  expect_last<LinearParams>(1);
  EXPECT_EQ(std::get<LinearParams>(run_.calls().back()).role, LinearRole::down);
  EXPECT_EQ(std::get<LinearParams>(run_.calls().back()).weight.out_features, 24);
  // In float32 one after the other, and told so.
  linear_swiglu(
      {.gate_up = {.x = x_, .weight = stand_in_weight(32, 16), .y = stand_in_tensor(kDryTokens, 32)}, .y = y_}, lane_);
  expect_last<SwigluParams>(3);
  EXPECT_TRUE(std::holds_alternative<LinearParams>(run_.calls()[1]));
}

TEST_P(DryRunOf, OneKernelOfAProductAndItsGate) {
  if (!kHaveCuda || !on_gpu()) GTEST_SKIP() << "only kernels of a GPU do both at once";
  Weight both = stand_in_weight(32, 16);
  Tensor x = x_, y = y_, gate_up = stand_in_tensor(kDryTokens, 32);
  both.dtype = x.dtype = y.dtype = gate_up.dtype = DType::bfloat16;
  linear_swiglu({.gate_up = {.x = x, .weight = both, .y = gate_up}, .y = y}, lane_);
  expect_last<LinearSwigluParams>(1);
}

TEST_P(DryRunOf, Attention) {
  rope({.q = q_,
        .k = k_,
        .positions = stand_in_array<std::int32_t>(),
        .inv_freq = stand_in_array<float>(),
        .head_dim = kDryHeadDim},
       lane_);
  expect_last<RopeParams>(1);
  kv_write({.k = k_, .v = k_, .kv = kv_, .sequences = sequences_}, lane_);
  expect_last<KvWriteParams>(2);
  rope_kv_write({.q = q_,
                 .k = k_,
                 .v = k_,
                 .positions = stand_in_array<std::int32_t>(),
                 .inv_freq = stand_in_array<float>(),
                 .kv = kv_,
                 .sequences = sequences_},
                lane_);
  expect_last<RopeKvWriteParams>(3);
  copy_pages({.data = stand_in_memory(),
              .num_halves = 2,
              .num_pages = 3,
              .page_bytes = 16,
              .moves = {{{0, 2}}},
              .num_moves = 1},
             lane_);
  expect_last<CopyPagesParams>(4);
  attention({.q = q_,
             .y = q_,
             .kv = kv_,
             .sequences = sequences_,
             .num_heads = kDryHeads,
             .scratch = stand_in_memory(),
             .plan = stand_in_memory()},
            lane_);
  expect_last<AttentionParams>(5);
  plan_attention({.kv = kv_,
                  .sequences = sequences_,
                  .num_tokens = kDryTokens,
                  .num_heads = kDryHeads,
                  .plan = stand_in_memory(),
                  .plan_bytes = std::size_t{1} << 40},
                 lane_);
  EXPECT_EQ(run_.calls().size(), on_gpu() ? 6U : 5U);  // the CPU needs no plan
}

TEST_P(DryRunOf, LatentAttention) {
  PagedKv latents = kv_;
  latents.num_kv_heads = 1;
  latents.head_dim = 12;
  head_linear({.x = stand_in_tensor(kDryTokens, 16),
               .x_stride = 8,
               .weight = stand_in_weight(2 * 6, 8),
               .num_heads = 2,
               .y = stand_in_tensor(kDryTokens, 12),
               .y_stride = 6},
              lane_);
  expect_last<HeadLinearParams>(1);
  latent_kv_write({.q = stand_in_tensor(kDryTokens, 16),
                   .latent = stand_in_tensor(kDryTokens, 12),
                   .query = stand_in_tensor(kDryTokens, 24),
                   .positions = stand_in_array<std::int32_t>(),
                   .inv_freq = stand_in_array<float>(),
                   .num_heads = 2,
                   .rope_dim = 4,
                   .kv = latents,
                   .sequences = sequences_},
                  lane_);
  expect_last<LatentKvWriteParams>(2);
}

TEST_P(DryRunOf, Experts) {
  constexpr int kDryExperts = 4, kDryTop = 2;
  route({.logits = stand_in_tensor(kDryTokens, kDryExperts),
         .rule = {.top_k = kDryTop},
         .experts = stand_in_array<std::int32_t>(),
         .weights = stand_in_array<float>()},
        lane_);
  expect_last<RouteParams>(1);
  group_rows({.experts = stand_in_array<std::int32_t>(),
              .num_tokens = kDryTokens,
              .top_k = kDryTop,
              .num_experts = kDryExperts,
              .first_row = stand_in_array<std::int32_t>(),
              .token_of = stand_in_array<std::int32_t>(),
              .row_of = stand_in_array<std::int32_t>()},
             lane_);
  expect_last<GroupRowsParams>(2);
  const std::vector<Weight> weights(kDryExperts, stand_in_weight(24, 16));
  grouped_linear({.x = stand_in_tensor(kDryTokens * kDryTop, 16),
                  .group = {.weights = weights.data(), .table = stand_in_array<const void*>(), .count = kDryExperts},
                  .first_row = stand_in_array<std::int32_t>(),
                  .y = stand_in_tensor(kDryTokens * kDryTop, 24)},
                 lane_);
  expect_last<GroupedLinearParams>(3);
  const GroupedSwigluParams gated{
      .x = stand_in_tensor(kDryTokens, 16),
      .token_of = stand_in_array<std::int32_t>(),
      .gate_up = {.x = stand_in_tensor(kDryTokens * kDryTop, 16),
                  .group = {.weights = weights.data(), .table = stand_in_array<const void*>(), .count = kDryExperts},
                  .first_row = stand_in_array<std::int32_t>(),
                  .y = stand_in_tensor(kDryTokens * kDryTop, 24)},
      .y = stand_in_tensor(kDryTokens * kDryTop, 12)};
  EXPECT_FALSE(is_fused(gated, lane_.stream.device()));  // float32
  grouped_swiglu(gated, lane_);
  expect_last<SwigluParams>(6);  // after gather_rows and grouped_linear
  combine_experts({.x = stand_in_tensor(kDryTokens * kDryTop, 16),
                   .weights = stand_in_array<float>(),
                   .row_of = stand_in_array<std::int32_t>(),
                   .top_k = kDryTop,
                   .y = y_},
                  lane_);
  expect_last<CombineExpertsParams>(7);
}

TEST_P(DryRunOf, Sampling) {
  argmax({.logits = x_, .tokens = stand_in_array<std::int32_t>()}, lane_);
  expect_last<ArgmaxParams>(1);
  sample({.logits = x_,
          .rows = stand_in_array<const SampleRow>(),
          .tokens = stand_in_array<std::int32_t>(),
          .scratch = stand_in_array<SampleCandidate>()},
         lane_);
  expect_last<SampleParams>(2);
  take_tokens({.tokens = stand_in_array<std::int32_t>(),
               .chosen = stand_in_array<std::int32_t>(),
               .num_tokens = kDryTokens,
               .num_chosen = 1},
              lane_);
  expect_last<TakeTokensParams>(3);
}

TEST_P(DryRunOf, AWrongShapeIsRefusedAndNothingToDoIsNoCall) {
  EXPECT_THROW(linear({.x = x_, .weight = stand_in_weight(24, 17), .y = stand_in_tensor(kDryTokens, 24)}, lane_),
               InvalidArgument);
  EXPECT_THROW(rmsnorm({.x = x_, .weight = nullptr, .y = y_}, lane_), InvalidArgument);
  rmsnorm({.x = stand_in_tensor(0, 16), .weight = stand_in_memory(), .y = stand_in_tensor(0, 16)}, lane_);
  EXPECT_TRUE(run_.calls().empty());
}

// What an operator would do that forgot to ask whether it is one.
TEST_P(DryRunOf, WorkOfItsStreamIsRefused) {
  EXPECT_THROW(lane_.stream.enqueue([](ThreadPool&) {}), InvalidArgument);
  EXPECT_THROW(static_cast<void>(lane_.stream.native()), InvalidArgument);
  EXPECT_THROW(lane_.stream.synchronize(), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(, DryRunOf, testing::Values(DeviceKind::cpu, DeviceKind::cuda), [](const auto& test) {
  return test.param == DeviceKind::cpu ? "TheCpu" : "ADeviceElsewhere";
});

}  // namespace
}  // namespace heddle
