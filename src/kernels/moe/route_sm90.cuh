// Routing of one token by one warp (route.h): its lanes share the experts, whose scores lie in shared memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/moe/route.h"

namespace heddle {

inline constexpr float kExcludedScore = -INFINITY;

// Shared memory of a warp, each of as many numbers as there are experts.
struct RouteScratch {
  float *scores, *choice, *groups;
};

struct BestScore {
  float value;
  int index;
};

// Unsigned numbers in the order of floats without NaN; both zeros are one number.
__device__ inline std::uint32_t ordered(float value) {
  const std::uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Of equal ones the lower index; all lanes get it.
__device__ inline BestScore best_of(const float* values, int count, int lane) {
  BestScore best{kExcludedScore, count};
  for (int i = lane; i < count; i += 32)
    if (best.index == count || values[i] > best.value) best = {values[i], i};
  const std::uint32_t mine = best.index == count ? 0 : ordered(best.value), largest = __reduce_max_sync(~0u, mine);
  const unsigned index =
      __reduce_min_sync(~0u, mine == largest ? static_cast<unsigned>(best.index) : static_cast<unsigned>(count));
  return {__shfl_sync(~0u, best.value, static_cast<int>(index % 32)), static_cast<int>(index)};
}

__device__ inline double sum_of_lanes(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// Whether the row has no NaN and no +infinity, and a finite number.
__device__ inline bool is_sound(const float* logits, int count, int lane) {
  bool sound = true, finite = false;
  for (int i = lane; i < count; i += 32) {
    sound = sound && !isnan(logits[i]) && logits[i] != INFINITY;
    finite = finite || isfinite(logits[i]);
  }
  return __all_sync(~0u, sound) && __any_sync(~0u, finite);
}

// scores: the logits, which become scores. Each lane reads and writes numbers of its own.
__device__ inline void score_row(float* scores, int count, RouterScore kind, int lane) {
  if (kind == RouterScore::sigmoid) {
    for (int i = lane; i < count; i += 32)
      scores[i] = static_cast<float>(1 / (1 + exp(-static_cast<double>(scores[i]))));
    return;
  }
  const double largest = best_of(scores, count, lane).value;
  double sum = 0;
  for (int i = lane; i < count; i += 32) sum += exp(scores[i] - largest);
  sum = sum_of_lanes(sum);
  for (int i = lane; i < count; i += 32) scores[i] = static_cast<float>(exp(scores[i] - largest) / sum);
}

__device__ inline float score_of_group(const float* group, int size, GroupScore kind) {
  float first = kExcludedScore, second = kExcludedScore;
  for (int i = 0; i < size; ++i) {
    second = fmaxf(second, fminf(first, group[i]));
    first = fmaxf(first, group[i]);
  }
  return kind == GroupScore::largest || size == 1 ? first : first + second;
}

// Excludes the experts of all groups but the best ones. `group_scores` is scratch.
__device__ inline void limit_groups(const RouteRule& rule, float* choice, int count, float* group_scores, int lane) {
  const int size = count / rule.num_groups;
  for (int g = lane; g < rule.num_groups; g += 32)
    group_scores[g] = score_of_group(choice + g * size, size, rule.group_score);
  __syncwarp();
  for (int i = 0; i < rule.top_groups; ++i) {
    const int best = best_of(group_scores, rule.num_groups, lane).index;
    __syncwarp();
    if (lane == 0) group_scores[best] = kExcludedScore;  // a chosen group
    __syncwarp();
  }
  for (int e = lane; e < count; e += 32)
    if (group_scores[e / size] != kExcludedScore) choice[e] = kExcludedScore;
  __syncwarp();
}

// Calls chosen(k, expert, weight) for each of the token's top_k experts, in one lane. All lanes of a warp.
template <class F>
__device__ void route_row(const float* logits, const float* bias, int count, const RouteRule& rule,
                          const RouteScratch& scratch, F chosen) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();  // the scratch has been read for the last token
  for (int e = lane; e < count; e += 32) scratch.scores[e] = logits[e];
  if (!is_sound(scratch.scores, count, lane)) {
    if (lane < rule.top_k) chosen(lane, lane, NAN);
    return;
  }
  score_row(scratch.scores, count, rule.score, lane);
  for (int e = lane; e < count; e += 32) scratch.choice[e] = scratch.scores[e] + (bias == nullptr ? 0 : bias[e]);
  __syncwarp();
  if (rule.num_groups > rule.top_groups) limit_groups(rule, scratch.choice, count, scratch.groups, lane);
  float sum = 0, weight = 0;  // lane k keeps the k-th choice
  int expert = 0;
  for (int k = 0; k < rule.top_k; ++k) {
    const int best = min(best_of(scratch.choice, count, lane).index, count - 1);
    const float its = scratch.scores[best];
    __syncwarp();
    if (lane == 0) scratch.choice[best] = kExcludedScore;
    __syncwarp();
    if (lane == k) {
      expert = best;
      weight = its;
    }
    sum += its;
  }
  if (rule.normalized) weight = __fdiv_rn(weight, sum + 1e-20f);
  if (lane < rule.top_k) chosen(lane, expert, weight * rule.scale);
}

}  // namespace heddle
