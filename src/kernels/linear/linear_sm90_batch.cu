#include "kernels/linear/linear_sm90_batch.h"

#include "base/alignment.h"
#include "base/dtype_switch.h"
#include "device/free_pair.h"
#include "kernels/linear/linear_shares.h"
#include "kernels/linear/linear_sm90_batch_launch.cuh"

namespace heddle {
namespace {

constexpr BatchPlan kPlans[] = {{.cluster = 1, .tile_rows = 64},  {.cluster = 2, .tile_rows = 64},
                                {.cluster = 1, .tile_rows = 128}, {.cluster = 2, .tile_rows = 128},
                                {.cluster = 4, .tile_rows = 192}, {.cluster = 1, .tile_rows = 256}};

template <int kGroups, int kTilesOfGroup, int kCluster>
void enqueue(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  with_16_bit_element(params.weight.dtype, [&]<class T>() {
    enqueue_batch<StreamOutput::sums, kGroups, kTilesOfGroup, kCluster, T>(params, plan, lane);
  });
}

BatchPlan plan_of(const LinearParams& params) {
  return batch_plan(params.x.rows, params.weight.out_features);
}

}  // namespace

// x should be at most half of what a block reads of W, because about 6.5 TB/s come from L2 while memory delivers 4.5: a block
// wants twice as many rows as there are tokens. The fewest blocks of a cluster that have them, of an H200's SMs, which hold 30
// clusters of four; then the lowest tile that holds a cluster's rows.
BatchPlan batch_plan(std::int64_t num_tokens, std::int64_t out_features) {
  constexpr std::int64_t kSms = 132, kFours = 30, kMostOfFours = 192;
  const std::int64_t rows = out_features / kSms;
  if (rows >= 2 * num_tokens) return {.cluster = 1, .tile_rows = rows < 64 ? 64 : rows < 128 ? 128 : 256};
  if (10 * rows < 7 * num_tokens && out_features <= kMostOfFours * kFours) return {.cluster = 4, .tile_rows = 192};
  return {.cluster = 2, .tile_rows = out_features <= 64 * kSms / 2 ? 64 : 128};
}

std::span<const BatchPlan> batch_plans() {
  return kPlans;
}

bool takes_batch(const LinearParams& params) {
  const DType dtype = params.weight.dtype;
  return params.x.rows > kLinearSmallRows && params.x.rows <= kLinearBatchRows && dtype != DType::float32 &&
         params.x.dtype == dtype && (params.y.dtype == dtype || params.y.dtype == DType::float32) &&
         params.weight.in_features % 8 == 0 && params.weight.out_features <= kMostOutputs &&
         params.x.row_stride % 8 == 0 && is_aligned(params.x.data) && is_aligned(params.weight.row(0));
}

bool is_for_batch(const LinearParams& params, const Lane& lane) {
  return takes_batch(params) && hold_a_cluster(lane.num_sms, plan_of(params).cluster);
}

void linear_batch(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  if (plan.tile_rows == 64)
    return plan.cluster == 1 ? enqueue<1, 1, 1>(params, plan, lane) : enqueue<1, 1, 2>(params, plan, lane);
  if (plan.tile_rows == 128)
    return plan.cluster == 1 ? enqueue<2, 1, 1>(params, plan, lane) : enqueue<2, 1, 2>(params, plan, lane);
  if (plan.tile_rows == 192) return enqueue<3, 1, 4>(params, plan, lane);
  enqueue<2, 2, 1>(params, plan, lane);
}

void linear_batch(const LinearParams& params, const Lane& lane) {
  linear_batch(params, plan_of(params), lane);
}

}  // namespace heddle
