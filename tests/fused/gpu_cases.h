// The course of the fused operators' kernels: random shapes, shards and delays, against sums in float64. A plain function
// of a rank, so that tests and heddle_fused_cases run the same.
#pragma once

#include <cstddef>

#include "base/function_ref.h"
#include "fabric/fabric.h"
#include "fused/cases.h"

namespace heddle {

std::size_t heap_bytes_of_fused_gpu_course(int ranks);

// Of a fabric on GPUs. Throws Failure, naming call and element, for a result that is out of its bound. `done` is called
// with the name of each part.
void run_fused_gpu_course(Fabric& fabric, Stream& stream, const FusedCourse& course,
                          FunctionRef<void(const char*)> done);

}  // namespace heddle
