#include "kernels/rows/rmsnorm.h"

#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"
#include "kernels/rows/rmsnorm_cpu.h"
#include "kernels/rows/rmsnorm_sm90.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows/rmsnorm.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

HWY_INLINE void add_rows(const float* x, float* residual, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) hn::StoreU(hn::Add(load(x + i), load(residual + i)), Floats(), residual + i);
  for (; i < n; ++i) residual[i] = x[i] + residual[i];
}

template <class Y>
HWY_INLINE void scale_row(const float* z, float factor, const float* weight, Y* y, std::int64_t n) {
  const Vector factors = hn::Set(Floats(), factor);
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(hn::Mul(hn::Mul(load(z + i), factors), load(weight + i)), y + i);
  for (; i < n; ++i) store_one(z[i] * factor * weight[i], y + i);
}

template <class T>
HWY_INLINE T* element(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return static_cast<T*>(tensor.data) + row * tensor.row_stride + column;
}

template <class Y>
void normalize_rows(const RmsNormParams& params, std::int64_t begin, std::int64_t end) {
  const std::int64_t hidden = params.x.columns / params.num_heads;
  for (std::int64_t token = begin; token < end; ++token) {
    for (std::int64_t column = 0; column < params.x.columns; column += hidden) {
      const float* z = element<float>(params.x, token, column);
      if (params.residual.data != nullptr) {
        auto* residual = element<float>(params.residual, token, column);
        add_rows(z, residual, hidden);
        z = residual;
      }
      const float mean = dot(z, z, hidden) / static_cast<float>(hidden);
      scale_row(z, 1.0f / std::sqrt(mean + params.eps), static_cast<const float*>(params.weight),
                element<Y>(params.y, token, column), hidden);
    }
  }
}

void rmsnorm_rows(const RmsNormParams& params, std::int64_t begin, std::int64_t end) {
  if (params.y.dtype == DType::bfloat16) return normalize_rows<bfloat16>(params, begin, end);
  normalize_rows<float>(params, begin, end);
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {
namespace {

HWY_EXPORT(rmsnorm_rows);

void rmsnorm_cpu(const RmsNormParams& params, ThreadPool& pool) {
  const auto rows = HWY_DYNAMIC_DISPATCH(rmsnorm_rows);
  pool.parallel_for(params.x.rows, rows_per_piece(3 * params.x.columns),
                    [&](std::int64_t begin, std::int64_t end) { rows(params, begin, end); });
}

// Limits the number of kernels: one for each mix of dtypes would be too many.
void require_one_16_bit_dtype(const RmsNormParams& params) {
  const auto holds = [&](DType dtype) {
    return params.x.dtype == dtype || params.y.dtype == dtype ||
           (params.residual.data != nullptr && params.residual.dtype == dtype);
  };
  require(!holds(DType::bfloat16) || !holds(DType::float16), "rmsnorm: bfloat16 and float16 do not mix on a GPU");
  const std::int64_t hidden = params.x.columns / params.num_heads;
  require(hidden <= kMostRmsNormHidden, "rmsnorm: {} elements to normalise, a GPU takes {}", hidden,
          kMostRmsNormHidden);
}

}  // namespace

void rmsnorm_tokens_cpu(const RmsNormParams& params, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(rmsnorm_rows)(params, begin, end);
}

void rmsnorm(const RmsNormParams& params, const Lane& lane) {
  const Tensor& x = params.x;
  require_activation(x, x.rows, x.columns, "rmsnorm", "x", activations_on(lane.stream, ActivationDTypes::float32));
  require_activation(params.y, x.rows, x.columns, "rmsnorm", "y",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  if (params.residual.data != nullptr)
    require_activation(params.residual, x.rows, x.columns, "rmsnorm", "residual",
                       activations_on(lane.stream, ActivationDTypes::float32));
  require(params.num_heads > 0 && x.columns % params.num_heads == 0,
          "rmsnorm: x has {} columns, not a multiple of num_heads {}", x.columns, params.num_heads);
  require_array(params.weight, x.rows, "rmsnorm", "weight");
  require(std::isfinite(params.eps) && params.eps >= 0, "rmsnorm: eps is {}, expected a finite number >= 0",
          params.eps);
  if (lane.stream.device().kind == DeviceKind::cuda) require_one_16_bit_dtype(params);
  if (x.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return rmsnorm_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { rmsnorm_cpu(params, pool); });
}

}  // namespace heddle
#endif
