// The course of the fused operators over ranks: random calls one after the other, without a barrier between them, against
// sums in float64. A plain function of a rank, so that threads and processes run the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "fabric/fabric.h"

namespace heddle {

struct FusedCourse {
  int calls = 60;                      // of each operator, with shapes drawn for each
  int calls_in_flight = 6;             // that are enqueued before the host waits
  std::uint64_t late_nanoseconds = 0;  // longest random delay of a rank before a call; 0: none
  std::uint32_t seed = 1;
  std::string_view only = {};  // parts whose names begin so; empty: all
};

std::size_t heap_bytes_of_fused_course(int ranks);

// Throws Failure, naming call and element, for a result that is out of its bound, or, on the CPU, has other bits than
// `linear` or than another rank. `done` is called with the name of each part.
void run_fused_course(Fabric& fabric, Stream& stream, const FusedCourse& course, FunctionRef<void(const char*)> done);

}  // namespace heddle
