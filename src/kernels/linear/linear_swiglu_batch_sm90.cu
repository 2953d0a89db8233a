// linear_swiglu() of a decode batch: a tile holds rows of gate and the same rows of up. Its blocks are no clusters, so that any
// lane takes it.
#include "base/dtype_switch.h"
#include "kernels/linear/linear_sm90_batch.h"
#include "kernels/linear/linear_sm90_batch_launch.cuh"

namespace heddle {
namespace {

constexpr BatchPlan kPlans[] = {{.cluster = 1, .tile_rows = 128}, {.cluster = 1, .tile_rows = 256}};

template <int kGroups, int kTilesOfGroup>
void enqueue(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  with_16_bit_element(params.weight.dtype, [&]<class T>() {
    enqueue_batch<StreamOutput::swiglu, kGroups, kTilesOfGroup, 1, T>(params, plan, lane);
  });
}

}  // namespace

std::span<const BatchPlan> swiglu_batch_plans() {
  return kPlans;
}

bool is_for_swiglu_batch(const LinearSwigluParams& params) {
  return takes_batch(params.gate_up) && params.y.dtype == params.gate_up.weight.dtype;
}

void linear_swiglu_batch(const LinearSwigluParams& params, const BatchPlan& plan, const Lane& lane) {
  LinearParams linear = params.gate_up;
  linear.y = params.y;
  if (plan.tile_rows == 128) return enqueue<1, 2>(linear, plan, lane);
  enqueue<2, 2>(linear, plan, lane);
}

// The lower tile that holds a block's rows, of an H200's SMs.
void linear_swiglu_batch(const LinearSwigluParams& params, const Lane& lane) {
  constexpr std::int64_t kSms = 132;
  const bool low = params.gate_up.weight.out_features <= 128 * kSms;
  linear_swiglu_batch(params, low ? kPlans[0] : kPlans[1], lane);
}

}  // namespace heddle
