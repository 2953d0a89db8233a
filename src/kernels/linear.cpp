#include "kernels/linear.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/cpu_target.h"
#include "kernels/linear_bf16_dot.h"
#include "kernels/linear_sm90.h"
#include "kernels/preconditions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/linear-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Rows [begin, end) of the weight, all tokens.
void linear_rows(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  if (params.x.dtype == DType::bfloat16) return multiply_rows<Pairs>(params, begin, end);
  switch (params.weight.dtype) {
    case DType::float32:
      return multiply_rows<Widened<float>>(params, begin, end);
    case DType::bfloat16:
      return multiply_rows<Widened<bfloat16>>(params, begin, end);
    case DType::float16:
      return multiply_rows<Widened<float16>>(params, begin, end);
  }
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {
namespace {

HWY_EXPORT(linear_rows);

LinearRows linear_rows_for(const LinearParams& params) {
  const bool has_avx512 = cpu_target().name == "AVX3";  // and no test has chosen another one
  if (params.x.dtype == DType::bfloat16 && has_avx512)
    if (const LinearRows rows = linear_rows_bf16_dot()) return rows;
  return HWY_DYNAMIC_DISPATCH(linear_rows);
}

// Rows of W that a thread takes at a time: enough to pay for being handed out and for widening x, few enough that
// threads end together.
std::int64_t rows_of_piece(const LinearParams& params, int num_threads) {
  constexpr std::int64_t kMultiple = 48;  // what is worked on at once
  constexpr std::int64_t kPiecesOfThread = 8;
  const std::int64_t share = params.weight.out_features / (num_threads * kPiecesOfThread);
  const std::int64_t elements = params.weight.in_features * ((params.x.rows + 3) / 4);
  const std::int64_t least = (1 << 16) / elements;
  const std::int64_t rows = std::max(std::min<std::int64_t>(share, 192), least);
  return (rows + kMultiple - 1) / kMultiple * kMultiple + (rows == 0 ? kMultiple : 0);
}

void linear_cpu(const LinearParams& params, ThreadPool& pool) {
  const LinearRows multiply_rows = linear_rows_for(params);
  pool.parallel_for(params.weight.out_features, rows_of_piece(params, pool.num_threads()),
                    [&](std::int64_t begin, std::int64_t end) { multiply_rows(params, begin, end); });
}

// A kernel walks over all rows with one pointer.
void require_one_run(const Weight& weight) {
  const auto* end = static_cast<const std::byte*>(weight.blocks[0].data);
  for (const WeightBlock& block : weight.blocks) {
    if (block.num_rows == 0) continue;
    require(end == nullptr || block.data == end, "linear: the blocks of a weight on a GPU must lie back to back");
    end = static_cast<const std::byte*>(block.data) + static_cast<std::size_t>(block.num_rows) * weight.row_bytes();
  }
}

void require_linear(const LinearParams& params, const Stream& stream) {
  const bool on_gpu = stream.device().kind == DeviceKind::cuda;
  require_weight(params.weight, "linear");
  require_activation(params.x, params.x.rows, params.weight.in_features, "linear", "x",
                     activations_on(stream, ActivationDTypes::with_bfloat16));
  require_activation(params.y, params.x.rows, params.weight.out_features, "linear", "y",
                     activations_on(stream, ActivationDTypes::float32));
  if (on_gpu) {
    require_one_run(params.weight);
    const std::size_t wanted = params.x.rows > kLinearSmallRows ? linear_workspace_bytes(stream.device()) : 0;
    require(wanted == 0 || (params.workspace != nullptr && params.workspace_bytes >= wanted),
            "linear: has a workspace of {} bytes and wants {}", params.workspace_bytes, wanted);
  } else {
    require(params.x.dtype == DType::float32 || params.weight.dtype == DType::bfloat16,
            "linear: x is bfloat16 and the weight {}; bfloat16 is multiplied with bfloat16 alone",
            name_of(params.weight.dtype));
  }
}

}  // namespace

std::size_t linear_workspace_bytes(Device device) {
  // 32 MiB is what NVIDIA advises for cuBLASLt on Hopper; the rest holds a bias rounded to the dtype of y.
  return device.kind == DeviceKind::cuda ? std::size_t{34} << 20 : 0;
}

void linear(const LinearParams& params, Stream& stream) {
  require_linear(params, stream);
  if (params.x.rows == 0) return;
  if (stream.device().kind == DeviceKind::cuda) {
    if constexpr (kHaveCuda) linear_sm90(params, stream);
    return;
  }
  stream.enqueue([params](ThreadPool& pool) { linear_cpu(params, pool); });
}

void tune_linear(const LinearParams& params, Stream& stream) {
  require_linear(params, stream);
  if (stream.device().kind == DeviceKind::cuda && params.x.rows != 0)
    if constexpr (kHaveCuda) tune_linear_sm90(params, stream);
  linear(params, stream);
}

}  // namespace heddle
#endif
