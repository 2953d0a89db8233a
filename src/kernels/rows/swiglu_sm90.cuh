// silu(gate) * up on a GPU, as accurate as a result of the last argument's type needs it.
#pragma once

namespace heddle {

// Overflow of exp, below -88.7, gives -0 as on the CPU.
__device__ inline float gated(float gate, float up, float) {
  return gate / (1.0f + expf(-gate)) * up;
}

// For results of 16 bits, whose own rounding hides that of the fast instructions: the accurate ones would take longer
// than the memory. Below -87.3 the inverse is subnormal, which these instructions take for 0: -0 too, less than 2^-119
// off.
template <class Half>
__device__ inline float gated(float gate, float up, Half) {
  float exponential, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(gate * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + exponential));
  return gate * inverse * up;
}

}  // namespace heddle
