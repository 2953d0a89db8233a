// One block. A thread takes an expert and goes through all pairs twice: to count its own, then to place them.
#include "device/launch_sm90.cuh"
#include "kernels/moe/group_rows_sm90.h"
#include "kernels/moe/route.h"

namespace heddle {
namespace {

__device__ int expert_of(const GroupRowsParams& params, std::int64_t pair) {
  const std::int32_t expert = params.experts[pair];
  return expert >= 0 && expert < params.num_experts ? expert : 0;
}

__global__ void __launch_bounds__(kMaxExperts) group_pairs(const __grid_constant__ GroupRowsParams params) {
  __shared__ std::int32_t counts[kMaxExperts];
  wait_for_earlier_kernels();
  let_later_kernels_start();
  const int expert = static_cast<int>(threadIdx.x);
  const std::int64_t num_pairs = params.num_tokens * params.top_k;
  std::int32_t count = 0;
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) count += expert_of(params, pair) == expert ? 1 : 0;
  counts[expert] = count;
  __syncthreads();
  std::int32_t row = 0;
  for (int e = 0; e < expert; ++e) row += counts[e];
  if (expert < params.num_experts) params.first_row[expert + 1] = row + count;
  if (expert == 0) params.first_row[0] = 0;
  if (count == 0) return;
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
    if (expert_of(params, pair) != expert) continue;
    params.row_of[pair] = row;
    params.token_of[row++] = static_cast<std::int32_t>(pair / params.top_k);
  }
}

}  // namespace

void group_rows_sm90(const GroupRowsParams& params, const Lane& lane) {
  launch_sm90("group_rows", group_pairs, {.grid = dim3(1), .block = kMaxExperts}, lane, params);
}

}  // namespace heddle
