#include "kernels/rows/swiglu.h"

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"
#include "kernels/rows/swiglu_sm90.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows/swiglu.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/cpu/lanes-inl.h"
// After lanes-inl.h.
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

HWY_INLINE Vector gated(Vector gate, Vector up) {
  const Floats d;
  const Vector silu = hn::Div(gate, hn::Add(hn::Set(d, 1.0f), exp(d, hn::Neg(gate))));
  return hn::Mul(silu, up);
}

template <class Y>
void gate_rows(const SwigluParams& params, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = params.y.columns;
  for (std::int64_t token = begin; token < end; ++token) {
    const float* gate = static_cast<const float*>(params.gate_up.data) + token * params.gate_up.row_stride;
    const float* up = gate + n;
    Y* y = static_cast<Y*>(params.y.data) + token * params.y.row_stride;
    std::int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) store(gated(load(gate + i), load(up + i)), y + i);
    if (i < n) {
      float last_gate[kWidth] = {}, last_up[kWidth] = {};
      Y last_y[kWidth];
      std::copy(gate + i, gate + n, last_gate);
      std::copy(up + i, up + n, last_up);
      store(gated(load(last_gate), load(last_up)), last_y);
      std::copy_n(last_y, n - i, y + i);
    }
  }
}

void swiglu_rows(const SwigluParams& params, std::int64_t begin, std::int64_t end) {
  if (params.y.dtype == DType::bfloat16) return gate_rows<bfloat16>(params, begin, end);
  gate_rows<float>(params, begin, end);
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {
namespace {

HWY_EXPORT(swiglu_rows);

void swiglu_cpu(const SwigluParams& params, ThreadPool& pool) {
  const auto rows = HWY_DYNAMIC_DISPATCH(swiglu_rows);
  pool.parallel_for(params.y.rows, rows_per_piece(8 * params.y.columns),
                    [&](std::int64_t begin, std::int64_t end) { rows(params, begin, end); });
}

}  // namespace

void require_swiglu(const SwigluParams& params, const Lane& lane) {
  require_activation(params.y, params.y.rows, params.y.columns, "swiglu", "y",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  require_activation(params.gate_up, params.y.rows, 2 * params.y.columns, "swiglu", "gate_up",
                     activations_on(lane.stream, ActivationDTypes::float32));
}

void swiglu(const SwigluParams& params, const Lane& lane) {
  require_swiglu(params, lane);
  if (params.y.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return swiglu_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { swiglu_cpu(params, pool); });
}

}  // namespace heddle
#endif
