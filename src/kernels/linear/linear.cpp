#include "kernels/linear/linear.h"

#include <cstdint>

#include "base/dtype_switch.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/cpu_target.h"
#include "kernels/dry_run.h"
#include "kernels/linear/linear_amx.h"
#include "kernels/linear/linear_bf16_dot.h"
#include "kernels/linear/linear_cpu.h"
#include "kernels/linear/linear_sm90.h"
#include "kernels/preconditions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/linear/linear-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Rows [begin, end) of the weight, all tokens.
void linear_rows(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  if (params.x.dtype == DType::bfloat16) return multiply_rows<Pairs>(params, begin, end);
  with_element(params.weight.dtype, [&]<class T>() { multiply_rows<Widened<T>>(params, begin, end); });
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {
namespace {

HWY_EXPORT(linear_rows);

}  // namespace

LinearRows linear_rows_of(LinearCpuLoops loops) {
  switch (loops) {
    case LinearCpuLoops::vectors:
      return HWY_DYNAMIC_DISPATCH(linear_rows);
    case LinearCpuLoops::pair_dots:
      return linear_rows_bf16_dot();
    case LinearCpuLoops::tiles:
      return linear_rows_amx();
  }
  return nullptr;
}

LinearCpuMachine linear_cpu_machine() {
  return {.avx512 = cpu_target().name == "AVX3",
          .tiles = linear_rows_amx() != nullptr,
          .pair_dots = linear_rows_bf16_dot() != nullptr,
          .pair_dots_pay = bf16_dot_pays()};
}

void linear_cpu(const LinearParams& params, LinearCpuLoops loops, ThreadPool& pool) {
  const LinearRows rows = linear_rows_of(loops);
  require(rows != nullptr, "linear: this processor does not execute the loops that are asked for");
  pool.parallel_for(params.weight.out_features, pieces_for(params, loops, pool.num_threads()),
                    [&](std::int64_t begin, std::int64_t end) { rows(params, begin, end); });
}

std::string_view name_of(LinearRole role) {
  switch (role) {
    case LinearRole::alone:
      return "alone";
    case LinearRole::qkv:
      return "qkv";
    case LinearRole::attention_output:
      return "output";
    case LinearRole::gate_up:
      return "gate_up";
    case LinearRole::down:
      return "down";
    case LinearRole::logits:
      return "logits";
  }
  return "?";
}

void require_linear(const LinearParams& params, const Lane& lane) {
  const bool on_gpu = lane.stream.device().kind == DeviceKind::cuda;
  require_weight(params.weight, "linear");
  require_activation(params.x, params.x.rows, params.weight.in_features, "linear", "x",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  require_activation(params.y, params.x.rows, params.weight.out_features, "linear", "y",
                     activations_on(lane.stream, ActivationDTypes::float32));
  if (on_gpu) {
    require_one_run(params.weight, "linear");
    const std::size_t wanted = params.x.rows > kLinearSmallRows ? linear_workspace_bytes(lane.stream.device()) : 0;
    require(wanted == 0 || (lane.workspace.data != nullptr && lane.workspace.size_bytes >= wanted),
            "linear: has a workspace of {} bytes and wants {}", lane.workspace.size_bytes, wanted);
  } else {
    require(params.x.dtype == DType::float32 || params.weight.dtype == DType::bfloat16,
            "linear: x is bfloat16 and the weight {}; bfloat16 is multiplied with bfloat16 alone",
            name_of(params.weight.dtype));
  }
}

std::size_t linear_workspace_bytes(Device device) {
  // NVIDIA recommends 32 MiB for cuBLASLt on Hopper. The rest holds a bias rounded to the dtype of y.
  return device.kind == DeviceKind::cuda ? std::size_t{34} << 20 : 0;
}

void linear(const LinearParams& params, const Lane& lane) {
  require_linear(params, lane);
  if (params.x.rows == 0 || recorded(params, lane)) return;
  if (lane.stream.device().kind == DeviceKind::cuda) {
    if constexpr (kHaveCuda) linear_sm90(params, lane);
    return;
  }
  lane.stream.enqueue(
      [params](ThreadPool& pool) { linear_cpu(params, loops_for(linear_cpu_machine(), params.x.dtype), pool); });
}

}  // namespace heddle
#endif
