#include "kernels/linear.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/cpu_target.h"
#include "kernels/linear_amx.h"
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

struct LinearLoops {
  LinearRows rows;
  bool on_tiles = false;
};

LinearLoops loops_for(const LinearParams& params) {
  const CpuTarget target = cpu_target();
  if (params.x.dtype == DType::bfloat16 && target.name == "AVX3") {  // and no test has chosen another one
    if (target.bfloat16_tiles) return {linear_rows_amx(), true};
    if (const LinearRows rows = linear_rows_bf16_dot()) return {rows};
  }
  return {HWY_DYNAMIC_DISPATCH(linear_rows)};
}

std::int64_t rounded_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Rows of W that a thread takes at a time where tokens are many: those for which the slowest thread is done first. That
// is the one with most pieces, each of which costs some rows' time besides its own (`rows_to_begin`: x is widened, or
// comes into the cache); and part of a piece is waited for where threads are not equally fast.
std::int64_t even_share(std::int64_t num_rows, std::int64_t multiple, std::int64_t rows_to_begin, int num_threads) {
  constexpr std::int64_t kMost = 256;
  constexpr std::int64_t kWaitedFor = 5;  // a fifth
  std::int64_t best = multiple, best_cost = 0;
  for (std::int64_t rows = multiple; rows <= kMost; rows += multiple) {
    const std::int64_t pieces = (num_rows + rows - 1) / rows;
    const std::int64_t rounds = (pieces + num_threads - 1) / num_threads;
    const std::int64_t cost = kWaitedFor * rounds * (rows + rows_to_begin) + rows;
    if (best_cost != 0 && cost >= best_cost) continue;
    best = rows;
    best_cost = cost;
  }
  return best;
}

// How the rows of W are shared out. With few tokens memory sets the pace, and the first pieces may be large and the
// last small; but one must pay for being handed out and for packing x.
ThreadPool::PieceSizes pieces_for(const LinearParams& params, bool on_tiles, int num_threads) {
  constexpr std::int64_t kFewTokens = 15;  // or less
  const std::int64_t num_rows = params.weight.out_features, multiple = on_tiles ? 32 : 24;
  const std::int64_t elements = params.weight.in_features * ((params.x.rows + 3) / 4);
  const std::int64_t least = rounded_up(std::max<std::int64_t>(1, (1 << 16) / elements), multiple);
  if (params.x.rows <= kFewTokens) return {std::max(num_rows, least), least};
  return std::max(least, even_share(num_rows, on_tiles ? multiple : multiple / 2, on_tiles ? 64 : 4, num_threads));
}

void linear_cpu(const LinearParams& params, ThreadPool& pool) {
  const LinearLoops loops = loops_for(params);
  pool.parallel_for(params.weight.out_features, pieces_for(params, loops.on_tiles, pool.num_threads()),
                    [&](std::int64_t begin, std::int64_t end) { loops.rows(params, begin, end); });
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

}  // namespace

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
