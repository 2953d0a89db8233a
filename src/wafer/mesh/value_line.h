// All-reduces along a line of places, on values. Sums are taken in the order in which the schedule's cores take them.
#pragma once

#include <cstdint>
#include <vector>

#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// The additions that end with the sum at `root`, in a valid sequential order.
struct LineReduce {
  struct Add {
    int to, from;
  };
  int root = 0;
  std::vector<Add> adds;
};

// For chunk `chunk` of a vector. A ring cuts a vector into `places` chunks; the other methods reduce it whole.
//   k_tree    schedule/k_tree.h
//   pipeline  from place 0 on to the last one, which is the root
//   ring      chunk c from place c + 1 on around the ring to place c
// Preconditions: places >= 1, options.phases >= 1, 0 <= chunk < places.
LineReduce line_reduce(int places, const AllReduceOptions& options, int chunk = 0);

// From both ends of the line to `root`, as Mesh::reduce sums.
LineReduce chain_to(int root, int places);

// Executes the additions on vectors of `count` values; place p's vector is at values + p * stride. The root ends with
// the result, the others with their partial sums.
void reduce_line(const LineReduce& line, float* values, std::int64_t stride, std::int64_t count, Reduction reduction);

}  // namespace heddle::mesh
