// Which instruction set the CPU operators run with on this machine.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

struct CpuTarget {
  std::string_view name;            // Highway's: "AVX3" (AVX-512), "AVX2", "NEON", ...
  int vector_lanes = 1;             // float32 a register, as far as the operators use it
  bool bfloat16_tiles = false;      // `linear` multiplies bfloat16 with bfloat16 on tiles, in their order (README.md)
  bool fused_multiply_add = false;  // if not, last bits differ from machines that have it (README.md)
};

CpuTarget cpu_target();

// "AVX2", "AVX3 with AMX", ...
std::string describe(const CpuTarget& target);

}  // namespace heddle
