// All-reduces along a line of places, in values: sums are taken in the order in which the schedule's cores take them.
#pragma once

#include <cstdint>
#include <vector>

#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// The additions that end with the sum at `root`, in an order in which they may be carried out one after the other.
struct LineReduce {
  struct Add {
    int to, from;
  };
  int root = 0;
  std::vector<Add> adds;
};

// Of chunk `chunk` of a vector, where a ring cuts it into `places` of them; the others take it whole.
//   k_tree    schedule/k_tree.h
//   pipeline  from place 0 on to the last one, which is the root
//   ring      chunk c from place c + 1 on around the ring to place c
// Preconditions: places >= 1, options.phases >= 1, 0 <= chunk < places.
LineReduce line_reduce(int places, const AllReduceOptions& options, int chunk = 0);

// From both ends of the line to `root`: how Mesh::reduce sums.
LineReduce chain_to(int root, int places);

// Carries it out on vectors of `count` values, place p's at values + p * stride. The root ends with the result, the
// others with what they had summed up.
void reduce_line(const LineReduce& line, float* values, std::int64_t stride, std::int64_t count, Reduction reduction);

}  // namespace heddle::mesh
