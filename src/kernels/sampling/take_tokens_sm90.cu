// One thread per row. The sampled tokens may be in host memory: a few bytes over the bus.
#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/sampling/take_tokens_sm90.h"

namespace heddle {
namespace {

constexpr int kTakeThreads = 256;

__global__ void __launch_bounds__(kTakeThreads) take_chosen_tokens(const __grid_constant__ TakeTokensParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  // Volatile, so that it is not read from a cache that holds the last step's value.
  const volatile std::int32_t* chosen = params.chosen;
  for (auto i = static_cast<std::int32_t>(blockIdx.x * kTakeThreads + threadIdx.x); i < params.num_tokens;
       i += static_cast<std::int32_t>(gridDim.x) * kTakeThreads) {
    const std::int32_t source = ~params.tokens[i];
    if (source < 0) continue;
    params.tokens[i] = source < params.num_chosen ? max(chosen[source], 0) : 0;
  }
}

}  // namespace

void take_tokens_sm90(const TakeTokensParams& params, const Lane& lane) {
  launch_sm90("take_tokens", take_chosen_tokens,
              {.grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(params.num_tokens, kTakeThreads))),
               .block = kTakeThreads,
               .fit = GridFit::trimmed},
              lane, params);
}

}  // namespace heddle
