// Softmax over tiles of keys, of the scores that WGMMA leaves in a thread's registers: two rows, and of each pairs of columns,
// those of the first row at i and i + 1, those of the second at i + 2 and i + 3 for every i divisible by 4. Weights are
// 2^(score * score_scale - base), relative to a base near the maximum of their row so far; four lanes share a row.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/sm90/convert_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

// The log2 by which weights may exceed 1 before the row is rescaled (after FlashAttention-4).
inline constexpr float kBaseSlack = 8;

// Replaces scores by weights, and adds a thread's part of them to its rows' sums. correction: what older sums and outputs
// are to be multiplied by; the sums here have been.
template <int kScores>
__device__ inline void weigh_scores(float (&scores)[kScores], float score_scale, float (&base)[2], float (&sums)[2],
                                    float (&correction)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kScores; i += 4) top = fmaxf(top, fmaxf(scores[i + 2 * r], scores[i + 2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * score_scale;
    const float before = base[r];
    if (!(top <= before + kBaseSlack)) base[r] = fmaxf(top, before);
    const float shift = base[r] == -INFINITY ? 0 : base[r];  // if the row has seen no key yet
    correction[r] = before == base[r] ? 1 : exp2_approx(before - shift);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      float& first = scores[i + 2 * r];
      float& second = scores[i + 2 * r + 1];
      first = exp2_approx(fmaf(first, score_scale, -shift));
      second = exp2_approx(fmaf(second, score_scale, -shift));
      sum += first + second;
    }
    sums[r] = fmaf(sums[r], correction[r], sum);
  }
}

// ptxas moves the wait for values ahead of independent instructions, so nothing would overlap it. It does not move
// the wait ahead of a trap, and this one depends on the weights: their sum is never negative.
__device__ inline void form_weights_here(const float (&sums)[2]) {
  if (sums[0] + sums[1] < 0) __trap();
}

// Weights as an operand of WGMMA with values of T.
template <class T, int kScores>
__device__ inline void round_weights(const float (&scores)[kScores], std::uint32_t (&weights)[kScores / 8][4]) {
#pragma unroll
  for (int k = 0; k < kScores / 8; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[k][i] = pack<T>(scores[8 * k + 2 * i], scores[8 * k + 2 * i + 1]);
}

}  // namespace heddle::sm90
