// linear_swiglu() of a decode batch: a tile holds rows of gate and the same rows of up.
#include "base/dtype_switch.h"
#include "device/free_pair.h"
#include "kernels/linear/linear_sm90_batch.h"
#include "kernels/linear/linear_sm90_batch_launch.cuh"

namespace heddle {
namespace {

template <class T>
void enqueue(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  constexpr StreamOutput kSwiglu = StreamOutput::swiglu;
  if (plan.tile_rows == 128) return enqueue_batch_for_cluster<kSwiglu, 1, 2, T>(params, plan, lane);
  enqueue_batch_for_cluster<kSwiglu, 2, 2, T>(params, plan, lane);
}

BatchPlan plan_of(const LinearSwigluParams& params) {
  return batch_plan(params.y.rows, params.y.columns, 2);
}

}  // namespace

bool takes_swiglu_batch(const LinearSwigluParams& params) {
  return takes_batch(params.gate_up) && params.y.dtype == params.gate_up.weight.dtype;
}

bool is_for_swiglu_batch(const LinearSwigluParams& params) {
  return takes_swiglu_batch(params);
}

void linear_swiglu_batch(const LinearSwigluParams& params, const BatchPlan& plan, const Lane& lane) {
  LinearParams linear = params.gate_up;
  linear.y = params.y;
  with_16_bit_element(linear.weight.dtype, [&]<class T>() { enqueue<T>(linear, plan, lane); });
}

void linear_swiglu_batch(const LinearSwigluParams& params, const Lane& lane) {
  linear_swiglu_batch(params, plan_of(params), lane);
}

}  // namespace heddle
