// How `linear` runs on the CPU: which of three implementations, and how W's rows are split among threads. The choices
// are functions of values, so tests reach all of them on any machine. A test can run each implementation that the
// processor supports.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_bf16_dot.h"

namespace heddle {

enum class LinearCpuLoops : std::uint8_t {
  vectors,    // Highway's, on the selected target; all dtypes
  pair_dots,  // AVX512-BF16; x and W bfloat16
  tiles,      // AMX; x and W bfloat16
};

// What the choice depends on.
struct LinearCpuMachine {
  bool avx512 = false;  // is the selected target; a test may select another
  bool tiles = false;   // supports AMX
  bool pair_dots = false;
  bool pair_dots_pay = false;
};

LinearCpuMachine linear_cpu_machine();

// The implementation that `linear` runs for x of this dtype.
constexpr LinearCpuLoops loops_for(const LinearCpuMachine& machine, DType x) {
  if (x != DType::bfloat16 || !machine.avx512) return LinearCpuLoops::vectors;
  if (machine.tiles) return LinearCpuLoops::tiles;
  return machine.pair_dots && machine.pair_dots_pay ? LinearCpuLoops::pair_dots : LinearCpuLoops::vectors;
}

// Whether the machine supports this implementation for x of this dtype.
constexpr bool can_run(const LinearCpuMachine& machine, LinearCpuLoops loops, DType x) {
  if (loops == LinearCpuLoops::vectors) return true;
  return x == DType::bfloat16 && machine.avx512 && (loops == LinearCpuLoops::tiles ? machine.tiles : machine.pair_dots);
}

// The number of tokens from which rows of W are packed (linear-inl.h); fewer tokens take kRowsOfFew rows strip by
// strip.
inline constexpr std::int64_t kFewestTokensToPackRows = 16;
inline constexpr std::int64_t kRowsOfFew = 24;

// Rows of W that a thread takes at a time.
ThreadPool::PieceSizes pieces_for(const LinearParams& params, LinearCpuLoops loops, int num_threads);

// These loops for rows of W and all tokens of checked params; null where this machine does not support them. Other
// operators cut their work themselves (moe/grouped_linear.h).
LinearRows linear_rows_of(LinearCpuLoops loops);

// Computes y on `pool` with these loops, which this machine supports; linear() has checked the params.
void linear_cpu(const LinearParams& params, LinearCpuLoops loops, ThreadPool& pool);

}  // namespace heddle
