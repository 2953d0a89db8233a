// The rotation of a pair of elements in kernels. Multiplications and additions are rounded one by one, as on the CPU.
#pragma once

namespace heddle {

struct Rotation {
  float cosine, sine;
};

__device__ inline Rotation rotation_of(int position, float inv_freq, float scale) {
  const double angle = __fmul_rn(static_cast<float>(position), inv_freq);
  double sine, cosine;
  sincos(angle, &sine, &cosine);
  return {__fmul_rn(static_cast<float>(cosine), scale), __fmul_rn(static_cast<float>(sine), scale)};
}

__device__ inline void rotate_pair(const Rotation& rotation, float& low, float& high) {
  const float a = low, b = high;
  low = __fsub_rn(__fmul_rn(a, rotation.cosine), __fmul_rn(b, rotation.sine));
  high = __fadd_rn(__fmul_rn(b, rotation.cosine), __fmul_rn(a, rotation.sine));
}

}  // namespace heddle
