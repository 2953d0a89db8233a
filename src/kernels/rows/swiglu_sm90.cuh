// silu(gate) * up on a GPU, as accurate as the type of the last argument needs.
#pragma once

namespace heddle {

// Overflow of exp, below -88.7, gives -0 as on the CPU.
__device__ inline float gated(float gate, float up, float) {
  return gate / (1.0f + expf(-gate)) * up;
}

// For 16-bit results, whose rounding hides the error of the fast instructions; the accurate ones would take longer than
// memory. Below -87.3 the reciprocal is subnormal, which these instructions flush to 0: the result is -0, off by less
// than 2^-119.
template <class Half>
__device__ inline float gated(float gate, float up, Half) {
  float exponential, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(gate * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + exponential));
  return gate * inverse * up;
}

}  // namespace heddle
