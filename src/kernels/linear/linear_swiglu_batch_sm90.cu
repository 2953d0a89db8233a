// linear_swiglu() of a decode batch: a tile holds rows of gate and the same rows of up. Its blocks are no clusters, so
// that any lane takes it.
#include "base/dtype_switch.h"
#include "kernels/linear/linear_sm90_batch.h"
#include "kernels/linear/linear_sm90_batch_launch.cuh"

namespace heddle {
namespace {

constexpr BatchPlan kPlans[] = {{.cluster = 1, .tile_rows = 128}, {.cluster = 1, .tile_rows = 128, .steps_apart = 3}};

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
  with_16_bit_element(linear.weight.dtype,
                      [&]<class T>() { enqueue_batch<StreamOutput::swiglu, 1, 2, 1, T>(linear, plan, lane); });
}

// Begins at different places along k as linear_batch() does.
void linear_swiglu_batch(const LinearSwigluParams& params, const Lane& lane) {
  linear_swiglu_batch(params, kPlans[params.y.rows <= 32 ? 1 : 0], lane);
}

}  // namespace heddle
