// Kernels for cluster_cuda_test.cpp.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/stream.h"
#include "device/cluster/combine.h"
#include "device/vector_copy.h"

namespace heddle {

// How a cluster's blocks reduce or gather.
enum class ClusterWay : std::uint8_t { pairs, offset, directly, in_bulk, two_steps, by_packets, by_flags };

inline constexpr int kClusterTestVectors = 80;  // the longest buffer
inline constexpr int kMostClusterBlocks = 16;

struct ClusterTestCall {
  bool reduces = true;  // else gathers
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  ClusterWay way = ClusterWay::pairs;
  int blocks = 1;    // of a cluster
  int clusters = 1;  // at once
  int calls = 1;
  bool dawdles = true;         // blocks and warps wait at random
  int* wrong = nullptr;        // [1], elements that differ from what they must be, over all calls
  Vector16* memory = nullptr;  // zeroed, off_chip_vectors() of each cluster
  const Vector16* in =
      nullptr;              // [blocks, kClusterTestVectors]: one more call with these, at full length, in cluster 0
  Vector16* out = nullptr;  // [blocks, kClusterTestVectors]: its result
};

// For segments by packets, and flags.
constexpr std::int64_t off_chip_vectors() {
  return std::int64_t{2} * kMostClusterBlocks * 2 * kClusterTestVectors + kMostClusterBlocks * 8;
}

// Element `at` of block `rank` in a call: small whole numbers, whose sums are exact in every type.
constexpr HEDDLE_HOST_DEVICE int whole_number_of(int call, int rank, int at) {
  return (call % 17 * 7 + rank * 5 + at * 3) % 17 - 8;
}

void enqueue_cluster_calls(const ClusterTestCall& test, Stream& stream);

}  // namespace heddle
