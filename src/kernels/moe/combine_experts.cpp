#include "kernels/moe/combine_experts.h"

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/moe/combine_experts_sm90.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

void combine_row(const CombineExpertsParams& params, std::int64_t token) {
  const auto row = [&](const Tensor& tensor, std::int64_t r) {
    return static_cast<float*>(tensor.data) + r * tensor.row_stride;
  };
  const float* weights = params.weights + token * params.top_k;
  const std::int32_t* rows = params.row_of + token * params.top_k;
  const float* shared = params.shared.data == nullptr ? nullptr : row(params.shared, token);
  float* y = row(params.y, token);
  for (int k = 0; k < params.top_k; ++k) {
    const float* x = row(params.x, rows[k]);
    const float weight = weights[k];
    if (k == 0 && shared == nullptr)
      for (std::int64_t i = 0; i < params.y.columns; ++i) y[i] = weight * x[i];
    else {
      const float* before = k == 0 ? shared : y;
      for (std::int64_t i = 0; i < params.y.columns; ++i) y[i] = before[i] + weight * x[i];
    }
  }
}

}  // namespace

void combine_experts(const CombineExpertsParams& params, const Lane& lane) {
  const ActivationDTypes dtypes = activations_on(lane.stream, ActivationDTypes::float32);
  require(params.top_k >= 1, "combine_experts: top_k is {}", params.top_k);
  require_activation(params.y, params.y.rows, params.y.columns, "combine_experts", "y", dtypes);
  require_activation(params.x, params.y.rows * params.top_k, params.y.columns, "combine_experts", "x", dtypes);
  if (params.shared.data != nullptr)
    require_activation(params.shared, params.y.rows, params.y.columns, "combine_experts", "shared", dtypes);
  require_array(params.weights, params.y.rows, "combine_experts", "weights");
  require_array(params.row_of, params.y.rows, "combine_experts", "row_of");
  if (params.y.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return combine_experts_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) {
    pool.parallel_for(params.y.rows, rows_per_piece(params.y.columns * (params.top_k + 1)),
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t token = begin; token < end; ++token) combine_row(params, token);
                      });
  });
}

}  // namespace heddle
