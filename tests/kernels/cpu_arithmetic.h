// The arithmetic of src/kernels/README.md written out with scalars: what operators must compute bit for bit where the
// machine fuses multiply and add.
#pragma once

#include <hwy/targets.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cpu_target.h"

namespace heddle {

inline float sum_of_lanes(std::array<float, 16> lanes) {
  for (int half = 8; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  return lanes[0];
}

// Pads with zeros, which matters: fma(0, 0, -0) is +0.
inline float dot_product(const float* a, const float* b, std::int64_t n) {
  std::array<float, 16> lanes{};
  for (std::int64_t k = 0; k < (n + 15) / 16 * 16; ++k)
    lanes[k % 16] = k < n ? std::fma(a[k], b[k], lanes[k % 16]) : std::fma(0.0f, 0.0f, lanes[k % 16]);
  return sum_of_lanes(lanes);
}

// The same for bfloat16 numbers, widened: lane i takes elements 2i + 1 and 2i of each 32.
inline float dot_product_of_pairs(const float* a, const float* b, std::int64_t n) {
  std::array<float, 16> lanes{};
  const auto product = [&](std::int64_t k, float sum) {
    return k < n ? std::fma(a[k], b[k], sum) : std::fma(0.0f, 0.0f, sum);
  };
  for (std::int64_t chunk = 0; chunk < n; chunk += 32)
    for (std::int64_t i = 0; i < 16; ++i) lanes[i] = product(chunk + 2 * i, product(chunk + 2 * i + 1, lanes[i]));
  return sum_of_lanes(lanes);
}

// The same on tiles: of each 32 elements the even ones are added up in order, and the odd ones, then both to the sum.
inline float dot_product_of_tiles(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
  for (std::int64_t step = 0; step < n; step += 32) {
    std::array<float, 2> halves{};
    for (std::int64_t k = step; k < step + 32; ++k)
      halves[k % 2] = k < n ? std::fma(a[k], b[k], halves[k % 2]) : std::fma(0.0f, 0.0f, halves[k % 2]);
    sum += halves[0] + halves[1];
  }
  return sum;
}

inline float exponential(float x) {
  if (x > 89.0f) x = 89.0f;
  if (x < -104.0f) x = -104.0f;
  const float shifted = std::fma(x, 1.44269504088896341f, 0x1.8p23f);
  const std::int32_t n = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(0x1.8p23f);
  const float nf = shifted - 0x1.8p23f;
  const float r = std::fma(nf, 2.12194440e-4f, std::fma(nf, -0.693359375f, x));
  float p = 1.9875691500e-4f;
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = std::fma(p, r, c);
  p = std::fma(p, r * r, r) + 1.0f;
  const std::int32_t low = n >> 1, high = n - low;
  return p * std::ldexp(1.0f, low) * std::ldexp(1.0f, high);
}

// 2^x of x <= 0.
inline float power_of_two(float x) {
  if (x < -152.0f) x = -152.0f;
  const float n = (x + 0x1.8p23f) - 0x1.8p23f, r = x - n;
  float p = 0x1.470b4ap-13f;
  for (const float c : {0x1.5f7276p-10f, 0x1.3b270ep-7f, 0x1.c6ae72p-5f, 0x1.ebfbe2p-3f, 0x1.62e432p-1f, 1.0f})
    p = std::fma(p, r, c);
  return std::ldexp(p, static_cast<int>(n));
}

// Calls f() with each instruction set of this machine that fuses in turn, and leaves the best one chosen.
template <class F>
void for_each_fused_target(F f) {
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    hwy::GetChosenTarget().Update(left & -left);
    if (cpu_target().fused_multiply_add) f();
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace heddle
