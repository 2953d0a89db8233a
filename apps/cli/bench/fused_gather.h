// The case of all-gather + GEMM, for `heddle bench all-gather-linear` and `heddle tune all-gather-linear`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/dtype.h"
#include "cli/bench/fused.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "parallel/tuned_gather.h"

namespace heddle {

inline constexpr std::int64_t kMostOfDimension = std::int64_t{1} << 20;

// C [m, n] = A [m, k] times the transpose of W [n, k], as a whole: each rank holds its shards.
struct FusedShape {
  std::int64_t m = 0, n = 0, k = 0;
  Sharded sharded = Sharded::columns;
  DType dtype = DType::float32;
  DeviceKind device = DeviceKind::cpu;  // of the ranks
};

// One way to compute C, and the variant's name in the record.
struct GatherWay {
  std::string name;
  GatherChoice choice;
};

FusedCaseMaker gather_case(const FusedShape& shape, int ranks, const std::vector<GatherWay>& ways);

}  // namespace heddle
