// Attention's sums for an operator that hands each on as soon as it is there. On the CPU.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/lane.h"
#include "base/thread_pool.h"
#include "kernels/attention/attention.h"

namespace heddle {

// Throws InvalidArgument where attention(params, lane) would.
void require_attention(const AttentionParams& params, const Lane& lane);

// Units of AttentionSums: those of one KV head, of consecutive tokens of the step.
struct AttendedUnits {
  std::int64_t first_token = 0;
  int num_tokens = 0;
  int kv_head = 0;
};

// Computes params.sums at once, for a task of a CPU stream. Each unit is in one call of `done`, which comes from a thread of
// the pool once the unit is complete. Precondition: as require_attention, and there are sums.
void attend_now(const AttentionParams& params, ThreadPool& pool, FunctionRef<void(const AttendedUnits&)> done);

}  // namespace heddle
