// Routing of one token by one warp (route.h): its lanes share the experts, every 32nd each, and keep them in registers.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/moe/route.h"

namespace heddle {

inline constexpr float kExcludedScore = -INFINITY;

// Shared memory of a warp for rules with groups, each of as many numbers as there are experts.
struct RouteScratch {
  float *choice, *groups;
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

__device__ inline float of_order(std::uint32_t order) {
  return __uint_as_float((order & 0x80000000u) != 0 ? order ^ 0x80000000u : ~order);
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

// A token's experts in the registers of a warp: of lane i those with the numbers i, i + 32, ...
template <int kOfLane>
struct RoutedToken {
  float scores[kOfLane], choice[kOfLane];  // logits before score()
  int count;

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int expert(int i) { return 32 * i + lane(); }

  __device__ RoutedToken(const float* logits, int num_experts) : count(num_experts) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) scores[i] = expert(i) < count ? logits[expert(i)] : kExcludedScore;
  }

  // Whether there is no NaN and no +infinity, and a finite number.
  __device__ bool is_sound() const {
    bool sound = true, finite = false;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      sound = sound && !isnan(scores[i]) && scores[i] != INFINITY;
      finite = finite || isfinite(scores[i]);
    }
    return __all_sync(~0u, sound) && __any_sync(~0u, finite);
  }

  __device__ void score(RouterScore kind) {
    if (kind == RouterScore::sigmoid) {
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) scores[i] = static_cast<float>(1 / (1 + exp(-static_cast<double>(scores[i]))));
      return;
    }
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) largest = max(largest, ordered(scores[i]));
    const double top = of_order(__reduce_max_sync(~0u, largest));
    double powers[kOfLane], sum = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      powers[i] = exp(scores[i] - top);
      sum += powers[i];  // an expert that does not exist adds 0
    }
    sum = sum_of_lanes(sum);
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) scores[i] = static_cast<float>(powers[i] / sum);
  }

  // What chooses: scores with their bias, without experts of other groups than the best ones.
  __device__ void prepare_choice(const RouteRule& rule, const float* bias, const RouteScratch& scratch) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      choice[i] = kExcludedScore;
      if (expert(i) < count) choice[i] = scores[i] + (bias == nullptr ? 0 : bias[expert(i)]);
    }
    if (rule.num_groups <= rule.top_groups) return;
    __syncwarp();  // the scratch has been read for the last token
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
      if (expert(i) < count) scratch.choice[expert(i)] = choice[i];
    __syncwarp();
    limit_groups(rule, scratch.choice, count, scratch.groups, lane());
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
      if (expert(i) < count) choice[i] = scratch.choice[expert(i)];
  }

  struct Chosen {
    int expert;
    float score;
  };

  // The best one, which takes no part from then on. Of equal ones the lower number; the same in all lanes.
  __device__ Chosen take_best() {
    std::uint32_t best = 0;
    int index = count;
    float its = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const std::uint32_t order = expert(i) < count ? ordered(choice[i]) : 0;
      if (order <= best) continue;
      best = order;
      index = expert(i);
      its = scores[i];
    }
    const std::uint32_t largest = __reduce_max_sync(~0u, best);
    const auto found = static_cast<int>(
        __reduce_min_sync(~0u, static_cast<unsigned>(best == largest && index < count ? index : count - 1)));
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
      if (expert(i) == found) choice[i] = kExcludedScore;
    return {found, __shfl_sync(~0u, its, found % 32)};
  }
};

template <int kOfLane, class F>
__device__ void route_row_of(const float* logits, const float* bias, int count, const RouteRule& rule,
                             const RouteScratch& scratch, F chosen) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RoutedToken<kOfLane> token(logits, count);
  if (!token.is_sound()) {
    if (lane < rule.top_k) chosen(lane, lane, NAN);
    return;
  }
  token.score(rule.score);
  token.prepare_choice(rule, bias, scratch);
  float sum = 0, weight = 0;  // lane k keeps the k-th choice
  int expert = 0;
  for (int k = 0; k < rule.top_k; ++k) {
    const auto best = token.take_best();
    if (lane == k) {
      expert = best.expert;
      weight = best.score;
    }
    sum += best.score;
  }
  if (rule.normalized) weight = __fdiv_rn(weight, sum + 1e-20f);
  if (lane < rule.top_k) chosen(lane, expert, weight * rule.scale);
}

// Calls chosen(k, expert, weight) for each of the token's top_k experts, in one lane. All lanes of a warp. `count` is kMost at
// most, which registers are taken for.
template <int kMost, class F>
__device__ void route_row(const float* logits, const float* bias, int count, const RouteRule& rule,
                          const RouteScratch& scratch, F chosen) {
  if (count <= 64) return route_row_of<2>(logits, bias, count, rule, scratch, chosen);
  if constexpr (kMost > 256)
    if (count > 256) return route_row_of<kMost / 32>(logits, bias, count, rule, scratch, chosen);
  route_row_of<8>(logits, bias, count, rule, scratch, chosen);
}

}  // namespace heddle
