// Kernels on lanes, for lanes_cuda_test.cpp.
#pragma once

#include <cstdint>

#include "base/lane.h"

namespace heddle {

enum class CountingKernel : std::uint8_t {
  by_lane,   // its blocks do one thing each: the caller sizes the grid
  resident,  // likewise, and its blocks wait for each other
  looping,   // its blocks go on to what a larger grid would have done
};

inline constexpr int kCountedX = 300, kCountedY = 7;

// Adds 1 to counts[x][y] for x < kCountedX and y < kCountedY (looping), or to counts[i] for i < blocks, and stores how
// many blocks there were.
void enqueue_counts(CountingKernel kernel, int blocks, int* counts, int* blocks_seen, const Lane& lane);

// That an SM holds at a time of these kernels.
int counting_blocks_of_sm(const Lane& lane);

}  // namespace heddle
