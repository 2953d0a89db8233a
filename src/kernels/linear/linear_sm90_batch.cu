#include "kernels/linear/linear_sm90_batch.h"

#include "base/alignment.h"
#include "base/dtype_switch.h"
#include "device/free_cluster.h"
#include "kernels/linear/linear_shares.h"
#include "kernels/linear/linear_sm90_batch_launch.cuh"

namespace heddle {
namespace {

constexpr BatchPlan kPlans[] = {
    {.cluster = 1, .tile_rows = 64}, {.cluster = 2, .tile_rows = 64}, {.cluster = 1, .tile_rows = 128}};

template <int kGroups, int kCluster>
void enqueue(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  with_16_bit_element(params.weight.dtype, [&]<class T>() {
    enqueue_batch<StreamOutput::sums, kGroups, 1, kCluster, T>(params, plan, lane);
  });
}

BatchPlan plan_of(const LinearParams& params) {
  return batch_plan(params.x.rows, params.weight.out_features);
}

}  // namespace

// Two blocks of a cluster where one has less than half a tile of 64 rows, of an H200's SMs: x is then half as much
// beside W. High tiles of few tokens begin at different places along k: 1 to 1.5 % faster; others are not.
BatchPlan batch_plan(std::int64_t num_tokens, std::int64_t out_features) {
  constexpr std::int64_t kSms = 132;
  if (out_features <= 64 * kSms / 2) return {.cluster = 2, .tile_rows = 64};
  if (out_features <= 64 * kSms) return {.cluster = 1, .tile_rows = 64};
  return {.cluster = 1, .tile_rows = 128, .steps_apart = num_tokens <= 32 ? 3 : 0};
}

std::span<const BatchPlan> batch_plans() {
  return kPlans;
}

bool takes_batch(const LinearParams& params) {
  const DType dtype = params.weight.dtype;
  return params.x.rows > kLinearSmallRows && params.x.rows <= kLinearBatchRows && dtype != DType::float32 &&
         params.x.dtype == dtype && (params.y.dtype == dtype || params.y.dtype == DType::float32) &&
         params.weight.out_features <= kMostOutputs && rows_are_aligned(params.x) && rows_are_aligned(params.weight);
}

bool is_for_batch(const LinearParams& params, const Lane& lane) {
  return takes_batch(params) && (plan_of(params).cluster == 1 || hold_a_pair(lane.num_sms));
}

void linear_batch(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  if (plan.cluster == 2) return enqueue<1, 2>(params, plan, lane);
  if (plan.tile_rows == 64) return enqueue<1, 1>(params, plan, lane);
  enqueue<2, 1>(params, plan, lane);
}

void linear_batch(const LinearParams& params, const Lane& lane) {
  linear_batch(params, plan_of(params), lane);
}

}  // namespace heddle
