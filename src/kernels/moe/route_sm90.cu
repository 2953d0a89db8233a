// A warp takes a token: its lanes share the experts, whose scores lie in shared memory.
#include <cmath>

#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/moe/route_sm90.h"

namespace heddle {
namespace {

constexpr int kRouteWarps = 4;
constexpr float kExcluded = -INFINITY;

struct Best {
  float value;
  int index;
};

// Of equal ones the lower index; all lanes get it.
__device__ Best best_of(const float* values, int count, int lane) {
  Best best{kExcluded, count};
  for (int i = lane; i < count; i += 32)
    if (best.index == count || values[i] > best.value) best = {values[i], i};
  for (int step = 16; step > 0; step /= 2) {
    const Best other{__shfl_xor_sync(~0u, best.value, step), __shfl_xor_sync(~0u, best.index, step)};
    if (other.index < count &&
        (best.index == count || other.value > best.value || (other.value == best.value && other.index < best.index)))
      best = other;
  }
  return best;
}

__device__ double sum_of_lanes(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// Whether the row has no NaN and no +infinity, and a finite number.
__device__ bool is_sound(const float* logits, int count, int lane) {
  bool sound = true, finite = false;
  for (int i = lane; i < count; i += 32) {
    sound = sound && !isnan(logits[i]) && logits[i] != INFINITY;
    finite = finite || isfinite(logits[i]);
  }
  return __all_sync(~0u, sound) && __any_sync(~0u, finite);
}

__device__ void score_row(const float* logits, int count, RouterScore kind, float* scores, int lane) {
  if (kind == RouterScore::sigmoid) {
    for (int i = lane; i < count; i += 32)
      scores[i] = static_cast<float>(1 / (1 + exp(-static_cast<double>(logits[i]))));
    return;
  }
  const double largest = best_of(logits, count, lane).value;
  double sum = 0;
  for (int i = lane; i < count; i += 32) sum += exp(logits[i] - largest);
  sum = sum_of_lanes(sum);
  for (int i = lane; i < count; i += 32) scores[i] = static_cast<float>(exp(logits[i] - largest) / sum);
}

__device__ float score_of_group(const float* group, int size, GroupScore kind) {
  float first = kExcluded, second = kExcluded;
  for (int i = 0; i < size; ++i) {
    second = fmaxf(second, fminf(first, group[i]));
    first = fmaxf(first, group[i]);
  }
  return kind == GroupScore::largest || size == 1 ? first : first + second;
}

// Excludes the experts of all groups but the best ones. `group_scores` is scratch.
__device__ void limit_groups(const RouteRule& rule, float* choice, int count, float* group_scores, int lane) {
  const int size = count / rule.num_groups;
  for (int g = lane; g < rule.num_groups; g += 32)
    group_scores[g] = score_of_group(choice + g * size, size, rule.group_score);
  __syncwarp();
  for (int i = 0; i < rule.top_groups; ++i) {
    const int best = best_of(group_scores, rule.num_groups, lane).index;
    __syncwarp();
    if (lane == 0) group_scores[best] = kExcluded;  // a chosen group
    __syncwarp();
  }
  for (int e = lane; e < count; e += 32)
    if (group_scores[e / size] != kExcluded) choice[e] = kExcluded;
  __syncwarp();
}

__global__ void __launch_bounds__(kRouteWarps * 32) route_tokens(const __grid_constant__ RouteParams params) {
  __shared__ float all_scores[kRouteWarps][kMaxExperts], all_choices[kRouteWarps][kMaxExperts],
      all_groups[kRouteWarps][kMaxExperts];
  wait_for_earlier_kernels();
  let_later_kernels_start();
  const RouteRule& rule = params.rule;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int count = static_cast<int>(params.logits.columns);
  float *scores = all_scores[warp], *choice = all_choices[warp];
  for (std::int64_t token = std::int64_t{blockIdx.x} * kRouteWarps + warp; token < params.logits.rows;
       token += std::int64_t{gridDim.x} * kRouteWarps) {
    const float* logits = static_cast<const float*>(params.logits.data) + token * params.logits.row_stride;
    std::int32_t* experts = params.experts + token * rule.top_k;
    float* weights = params.weights + token * rule.top_k;
    if (!is_sound(logits, count, lane)) {
      for (int k = lane; k < rule.top_k; k += 32) {
        experts[k] = k;
        weights[k] = NAN;
      }
      continue;
    }
    score_row(logits, count, rule.score, scores, lane);
    for (int e = lane; e < count; e += 32) choice[e] = scores[e] + (params.bias == nullptr ? 0 : params.bias[e]);
    __syncwarp();
    if (rule.num_groups > rule.top_groups) limit_groups(rule, choice, count, all_groups[warp], lane);
    float sum = 0;
    for (int k = 0; k < rule.top_k; ++k) {
      const int best = min(best_of(choice, count, lane).index, count - 1);
      const float weight = scores[best];
      __syncwarp();
      if (lane == 0) {
        choice[best] = kExcluded;
        experts[k] = best;
        weights[k] = weight;
      }
      __syncwarp();
      sum += weight;
    }
    if (lane == 0)
      for (int k = 0; k < rule.top_k; ++k) {
        if (rule.normalized) weights[k] = __fdiv_rn(weights[k], sum + 1e-20f);
        weights[k] *= rule.scale;
      }
    __syncwarp();
  }
}

}  // namespace

void route_sm90(const RouteParams& params, const Lane& lane) {
  launch_sm90("route", route_tokens,
              {.grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(params.logits.rows, kRouteWarps))),
               .block = kRouteWarps * 32,
               .fit = GridFit::trimmed},
              lane, params);
}

}  // namespace heddle
