// The SIMD target that CPU operators use on this machine.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

struct CpuTarget {
  std::string_view name;        // Highway's: "AVX3" (AVX-512), "AVX2", "NEON", ...
  int vector_lanes = 1;         // float32 lanes per register, as far as the operators use them
  bool bfloat16_tiles = false;  // `linear` multiplies bfloat16 with bfloat16 on AMX, in its order of sums (README.md)
  bool fused_multiply_add = false;  // if not, low-order bits differ from machines that have it (README.md)
};

CpuTarget cpu_target();

// "AVX2", "AVX3 with AMX", ...
std::string describe(const CpuTarget& target);

}  // namespace heddle
