#include "kernels/linear/head_linear.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/linear/head_linear_sm90.h"
#include "kernels/linear/linear_cpu.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

LinearParams of_head(const HeadLinearParams& params, int head) {
  const std::int64_t out = params.out_features();
  LinearParams one{.x = params.x.column_slice(head * params.x_stride, params.weight.in_features),
                   .weight = params.weight,
                   .y = params.y.column_slice(head * params.y_stride, out)};
  one.weight.blocks = {};
  one.weight.blocks[0] = {params.weight.row(head * out), out};
  one.weight.out_features = out;
  return one;
}

void head_linear_cpu(const HeadLinearParams& params, ThreadPool& pool) {
  const LinearRows multiply = linear_rows_of(loops_for(linear_cpu_machine(), params.x.dtype));
  constexpr std::int64_t kChunk = 8 * kRowsOfFew;  // rows of a head that a thread takes at a time
  const std::int64_t out = params.out_features(), chunks = ceil_div(out, kChunk);
  pool.parallel_for(params.num_heads * chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t first = piece % chunks * kChunk;
      multiply(of_head(params, static_cast<int>(piece / chunks)), first, std::min(out, first + kChunk));
    }
  });
}

}  // namespace

void head_linear(const HeadLinearParams& params, const Lane& lane) {
  const bool on_gpu = lane.stream.device().kind == DeviceKind::cuda;
  const Weight& weight = params.weight;
  require_weight(weight, "head_linear");
  require_one_run(weight, "head_linear");
  require(weight.bias == nullptr, "head_linear: the weight has a bias");
  require(params.num_heads >= 1 && weight.out_features % params.num_heads == 0, "head_linear: {} rows for {} heads",
          weight.out_features, params.num_heads);
  require(params.x_stride >= weight.in_features && params.y_stride >= params.out_features(),
          "head_linear: heads of {} and {} columns lie {} and {} apart", weight.in_features, params.out_features(),
          params.x_stride, params.y_stride);
  require_activation(params.x, params.x.rows, (params.num_heads - 1) * params.x_stride + weight.in_features,
                     "head_linear", "x", activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  require_activation(params.y, params.x.rows, (params.num_heads - 1) * params.y_stride + params.out_features(),
                     "head_linear", "y", activations_on(lane.stream, ActivationDTypes::float32));
  require(on_gpu || params.x.dtype == DType::float32 || weight.dtype == DType::bfloat16,
          "head_linear: x is bfloat16 and the weight {}; bfloat16 is multiplied with bfloat16 alone",
          name_of(weight.dtype));
  if (params.x.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (on_gpu) return head_linear_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { head_linear_cpu(params, pool); });
}

}  // namespace heddle
