// The inner loops of measure.h, compiled once per instruction set; the best supported one is chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// Sum, modulo 2^64, of `count` words; count % kSumGranule == 0, `words` is 64-byte aligned.
inline constexpr std::size_t kSumGranule = 256;
std::uint64_t sum_words(const std::uint64_t* words, std::size_t count);

// Runs `steps` steps of independent multiply-add chains that start from `seed`. The result depends on all of them.
struct FmaRun {
  float result;
  double flops;  // multiplications and additions carried out
};
FmaRun run_fma_chains(float seed, std::int64_t steps);

struct HighwayVersion {
  int major;
  int minor;
  int patch;
};
HighwayVersion kernel_library_version();

}  // namespace heddle
