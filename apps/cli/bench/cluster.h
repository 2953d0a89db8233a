// heddle bench cluster: its parts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device.h"
#include "base/stream.h"

namespace CLI {
class App;
}

namespace heddle {

// How the blocks of a cluster reduce or gather; the last two go through global memory (device/cluster/README.md).
enum class ClusterRoute : std::uint8_t { tree, papers_tree, one_step, in_bulk, two_steps, by_packets, by_flags };
inline constexpr int kClusterRoutes = 7;

constexpr bool is_on_chip(ClusterRoute route) {
  return route != ClusterRoute::by_packets && route != ClusterRoute::by_flags;
}

// A kernel whose clusters do nothing but `calls` ClusterReduces (sums of float32) or ClusterGathers in a row.
struct ClusterCalls {
  bool reduces = true;
  ClusterRoute route = ClusterRoute::tree;
  int blocks = 4;    // of a cluster
  int clusters = 1;  // at once
  int calls = 1;
  int vectors = 1;               // of 16 bytes, that a block gives: the buffer of a reduce, the segment of a gather
  void* memory = nullptr;        // of the device, zeroed once, cluster_memory_bytes()
  std::uint32_t first_call = 0;  // calls before on that memory
};

std::size_t cluster_memory_bytes(const ClusterCalls& calls);
// Of a block; more than a device has: the route does not exist at that size.
std::size_t cluster_shared_bytes(const ClusterCalls& calls);
void enqueue_cluster_calls(const ClusterCalls& calls, Stream& stream);

// Dependent loads by one thread of block 0 from each other block of a cluster in turn; with one block, from its own
// shared memory.
struct ClusterLatency {
  double cycles, nanoseconds;  // a load
};
ClusterLatency measure_cluster_latency(int blocks, Stream& stream);
// The same from global memory: a chain through more than the L2 cache holds.
ClusterLatency measure_global_latency(Stream& stream);

// Every block of every cluster reads its neighbour's shared memory `passes` times, 16 bytes a load; with one block its
// own. Enqueues; returns the bytes that all blocks read.
double enqueue_cluster_reads(int blocks, int passes, void* sink, Stream& stream);

// Blocks that run at once where each takes an SM.
int active_blocks(int blocks_of_cluster, Device device);

void add_cluster_benchmark(CLI::App& bench);

}  // namespace heddle
