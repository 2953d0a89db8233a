#include "kernels/linear/linear_sm90_batch.h"

#include "base/alignment.h"
#include "base/dtype_switch.h"
#include "device/free_pair.h"
#include "kernels/linear/linear_shares.h"
#include "kernels/linear/linear_sm90_batch_launch.cuh"

namespace heddle {
namespace {

constexpr BatchPlan kPlans[] = {
    {.cluster = 1, .tile_rows = 64},  {.cluster = 2, .tile_rows = 64},  {.cluster = 4, .tile_rows = 64},
    {.cluster = 1, .tile_rows = 128}, {.cluster = 2, .tile_rows = 128}, {.cluster = 4, .tile_rows = 128},
    {.cluster = 1, .tile_rows = 256}, {.cluster = 2, .tile_rows = 256}, {.cluster = 4, .tile_rows = 256}};

template <class T>
void enqueue(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  constexpr StreamOutput kSums = StreamOutput::sums;
  if (plan.tile_rows == 64) return enqueue_batch_for_cluster<kSums, 1, 1, T>(params, plan, lane);
  if (plan.tile_rows == 128) return enqueue_batch_for_cluster<kSums, 2, 1, T>(params, plan, lane);
  enqueue_batch_for_cluster<kSums, 2, 2, T>(params, plan, lane);
}

BatchPlan plan_of(const LinearParams& params) {
  return batch_plan(params.x.rows, params.weight.out_features, 1);
}

}  // namespace

// The fewest blocks for which x is at most half of what a block reads of W, which takes a tile of that many rows: about 6.5
// TB/s come from L2 while memory delivers 4.5. Then the lowest tile that holds the rows of a cluster, of an H200's.
BatchPlan batch_plan(std::int64_t num_tokens, std::int64_t outputs, int rows_of_output) {
  constexpr std::int64_t kSms = 132;
  const auto rows_of = [&](int cluster) { return outputs * rows_of_output * cluster / kSms; };
  const int cluster = rows_of(1) >= 2 * num_tokens ? 1 : 2;
  const std::int64_t rows = rows_of(cluster) + 1;
  return {.cluster = cluster, .tile_rows = rows <= 64 && rows_of_output == 1 ? 64 : rows <= 128 ? 128 : 256};
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
  return takes_batch(params) && (plan_of(params).cluster == 1 || hold_a_pair(lane.num_sms));
}

void linear_batch(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  with_16_bit_element(params.weight.dtype, [&]<class T>() { enqueue<T>(params, plan, lane); });
}

void linear_batch(const LinearParams& params, const Lane& lane) {
  linear_batch(params, plan_of(params), lane);
}

}  // namespace heddle
