// One block. It counts the pairs of each expert, adds the counts up, and places the pairs, kGroupThreads at a time: a pair's
// place among those of its expert is that among the lanes of its warp, behind earlier warps and rounds.
#include "device/launch_sm90.cuh"
#include "kernels/moe/group_rows_sm90.h"
#include "kernels/moe/route.h"

namespace heddle {
namespace {

constexpr int kGroupThreads = kMaxExperts, kGroupWarps = kGroupThreads / 32;
static_assert(kGroupThreads % 32 == 0 && kGroupWarps <= 32);

__device__ int expert_of(const GroupRowsParams& params, std::int64_t pair) {
  const std::int32_t expert = params.experts[pair];
  return expert >= 0 && expert < params.num_experts ? expert : 0;
}

// The sum of all threads' numbers before this one's. All threads.
__device__ int sum_before(int number, int* sums_of_warps) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int up_to = number;
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(~0u, up_to, step);
    if (lane >= step) up_to += before;
  }
  if (lane == 31) sums_of_warps[warp] = up_to;
  __syncthreads();
  int before = up_to - number;
  for (int w = 0; w < warp; ++w) before += sums_of_warps[w];
  return before;
}

__global__ void __launch_bounds__(kGroupThreads) group_pairs(const __grid_constant__ GroupRowsParams params) {
  __shared__ int counts[kMaxExperts], sums_of_warps[kGroupWarps];
  __shared__ std::uint16_t in_warp[kGroupWarps][kMaxExperts];  // pairs of a round
  wait_for_earlier_kernels();
  let_later_kernels_start();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const std::int64_t num_pairs = params.num_tokens * params.top_k;
  counts[thread] = 0;
  __syncthreads();
  for (std::int64_t pair = thread; pair < num_pairs; pair += kGroupThreads)
    atomicAdd(&counts[expert_of(params, pair)], 1);
  __syncthreads();
  const int count = counts[thread], first = sum_before(count, sums_of_warps);
  if (thread < params.num_experts) params.first_row[thread + 1] = first + count;
  if (thread == 0) params.first_row[0] = 0;
  counts[thread] = first;  // from here on: the row of the expert's next pair
  for (std::int64_t from = 0; from < num_pairs; from += kGroupThreads) {
    for (int w = 0; w < kGroupWarps; ++w) in_warp[w][thread] = 0;
    __syncthreads();
    const std::int64_t pair = from + thread;
    const int expert = pair < num_pairs ? expert_of(params, pair) : -1;
    const unsigned alike = __match_any_sync(~0u, expert);
    const int before = __popc(alike & ((1u << lane) - 1));
    if (expert >= 0 && before == 0) in_warp[warp][expert] = static_cast<std::uint16_t>(__popc(alike));
    __syncthreads();
    if (expert >= 0) {
      int row = counts[expert] + before;
      for (int w = 0; w < warp; ++w) row += in_warp[w][expert];
      params.row_of[pair] = row;
      params.token_of[row] = static_cast<std::int32_t>(pair / params.top_k);
    }
    __syncthreads();
    for (int w = 0; w < kGroupWarps; ++w) counts[thread] += in_warp[w][thread];
    __syncthreads();
  }
}

}  // namespace

void group_rows_sm90(const GroupRowsParams& params, const Lane& lane) {
  launch_sm90("group_rows", group_pairs, {.grid = dim3(1), .block = kGroupThreads}, lane, params);
}

}  // namespace heddle
