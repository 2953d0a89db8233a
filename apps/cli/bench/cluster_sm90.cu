// bench cluster: its kernels.
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "cli/bench/cluster.h"
#include "device/cluster/cluster_gather.h"
#include "device/cluster/cluster_reduce.h"
#include "device/cluster/cluster_sm90.cuh"
#include "device/cluster/off_chip_sm90.cuh"
#include "device/launch_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernels
using schedule::Peers;

constexpr const char* kBenchCluster = "bench cluster";
constexpr int kCallThreads = 512, kReadThreads = 1024, kReadBytes = 64 << 10, kChain = 1024;
constexpr std::size_t kMostOfBlock = std::size_t{120} << 10;  // more than half of an SM's shared memory

struct CallBarriers {
  ReduceBarriers<ClusterMbarrier> reduce;
  GatherBarriers<ClusterMbarrier> gather;
};

__global__ void __launch_bounds__(kCallThreads)
    cluster_calls(const __grid_constant__ ClusterCalls of, const __grid_constant__ KernelWaits waits) {
  extern __shared__ __align__(128) uint4 bench_memory[];
  __shared__ CallBarriers barriers;
  auto* const data = reinterpret_cast<Vector16*>(bench_memory);
  Vector16* const rest = data + of.vectors;  // slots or segments
  const ClusterBlock team;
  if (team.lane() == 0) {
    barriers.reduce.init(team);
    barriers.gather.init();
    publish_barriers();
  }
  for (int i = team.lane(); i < of.vectors; i += team.lanes()) data[i] = Vector16{};
  meet_cluster();
  const Peers peers = of.route == ClusterRoute::papers_tree ? Peers::offset : Peers::pairs;
  ClusterReducer<ClusterBlock, ClusterMbarrier> reducer(team, peers, barriers.reduce, rest, of.vectors, waits);
  const int segment = of.route == ClusterRoute::two_steps ? of.vectors / team.blocks() : of.vectors;
  ClusterGatherer<ClusterBlock, ClusterMbarrier> gatherer(team, peers, barriers.gather, rest, segment, waits);
  const std::size_t each = 4 * static_cast<std::size_t>(team.blocks()) * static_cast<std::size_t>(of.vectors);
  auto* const segments = static_cast<Vector16*>(of.memory);
  auto* const flags = reinterpret_cast<std::uint32_t*>(segments + static_cast<std::size_t>(of.clusters) * each);
  const int cluster = static_cast<int>(blockIdx.x) / team.blocks();
  OffChipGatherer off_chip(team,
                           {segments + static_cast<std::size_t>(cluster) * each,
                            flags + cluster * team.blocks() * OffChipMemory::kFlagStride},
                           of.vectors, of.first_call, waits);
  const auto repeat = [&](auto call) {
    for (int i = 0; i < of.calls; ++i) call();
  };
  const int n = of.vectors;
  // What is gathered off the chip goes to registers; one word in 2^32 is stored, so that the loads are kept.
  const auto keep = [&](int, int, const Vector16& v) {
    if (v.words[0] == 0x7f123457) data[0] = v;
  };
  if (of.reduces) {
    OffChipSum<float, ReduceOp::sum> sum(data, team.blocks());
    switch (of.route) {
      case ClusterRoute::tree:
      case ClusterRoute::papers_tree:
        repeat([&] { reducer.reduce<float, ReduceOp::sum>(data, n); });
        break;
      case ClusterRoute::one_step:
        repeat([&] { gatherer.reduce_directly<float, ReduceOp::sum>(data, n); });
        break;
      case ClusterRoute::in_bulk:
        repeat([&] {
          const Vector16* const all = gatherer.gather_in_bulk(data, n);
          for (int i = team.lane(); i < n; i += team.lanes()) {
            Numbers<float> numbers(all[i]);
            for (int block = 1; block < team.blocks(); ++block) numbers.combine<ReduceOp::sum>(all[block * n + i]);
            data[i] = numbers.vector();
          }
        });
        break;
      case ClusterRoute::two_steps:
        repeat([&] { gatherer.reduce_in_two_steps<float, ReduceOp::sum>(data, n); });
        break;
      case ClusterRoute::by_packets:
        repeat([&] { off_chip.by_packets(data, n, sum); });
        break;
      case ClusterRoute::by_flags:
        repeat([&] { off_chip.by_flags(data, n, sum); });
        break;
    }
  } else {
    switch (of.route) {
      case ClusterRoute::tree:
      case ClusterRoute::papers_tree:
        repeat([&] { gatherer.gather(data, n); });
        break;
      case ClusterRoute::one_step:
        repeat([&] { gatherer.gather_directly(data, n); });
        break;
      case ClusterRoute::in_bulk:
        repeat([&] { gatherer.gather_in_bulk(data, n); });
        break;
      case ClusterRoute::two_steps:
        break;
      case ClusterRoute::by_packets:
        repeat([&] { off_chip.by_packets(data, n, keep); });
        break;
      case ClusterRoute::by_flags:
        repeat([&] { off_chip.by_flags(data, n, keep); });
        break;
    }
  }
  meet_cluster();
}

struct Latency {
  std::uint64_t cycles, nanoseconds, loads;
  std::uint32_t sink;
};

// Each word of the chain names the next one.
__global__ void chase_shared(Latency* result) {
  __shared__ std::uint32_t chain[kChain];
  for (int i = 0; i < kChain; ++i) chain[i] = static_cast<std::uint32_t>((i + 37) % kChain) * 4;
  __syncthreads();
  const int blocks = blocks_of_cluster();
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
  if (blockIdx.x == 0) {
    std::uint64_t cycles = 0, nanoseconds = 0, loads = 0;
    std::uint32_t at = 0;
    for (int pass = 0; pass < 2; ++pass) {  // the first warms up
      cycles = nanoseconds = loads = 0;
      for (int peer = blocks > 1 ? 1 : 0; peer < blocks; ++peer) {
        const std::uint32_t base = address_in_block(shared_address(chain), peer);
        const std::uint64_t begin_ns = now_nanoseconds();
        const long long begin = clock64();
        for (int i = 0; i < 4 * kChain; ++i)
          asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(at) : "r"(base + at) : "memory");
        cycles += static_cast<std::uint64_t>(clock64() - begin);
        nanoseconds += now_nanoseconds() - begin_ns;
        loads += 4 * kChain;
      }
    }
    *result = {cycles, nanoseconds, loads, at};
  }
  meet_cluster();
}

__global__ void chase_global(const std::uint32_t* chain, Latency* result) {
  std::uint32_t at = 0;
  const std::uint64_t begin_ns = now_nanoseconds();
  const long long begin = clock64();
  constexpr int kLoads = 20000;
  for (int i = 0; i < kLoads; ++i) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(chain + at) : "memory");
  *result = {static_cast<std::uint64_t>(clock64() - begin), now_nanoseconds() - begin_ns, kLoads, at};
}

__global__ void __launch_bounds__(kReadThreads) read_neighbour(int passes, std::uint32_t* sink) {
  extern __shared__ __align__(128) uint4 bench_memory[];
  constexpr int kVectors = kReadBytes / 16;
  for (int i = static_cast<int>(threadIdx.x); i < kVectors; i += kReadThreads)
    bench_memory[i] = make_uint4(threadIdx.x, 1, 2, 3);
  __syncthreads();
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
  const int peer = (rank_in_cluster() + 1) % blocks_of_cluster();
  const std::uint32_t from = address_in_block(shared_address(bench_memory + threadIdx.x), peer);
  std::uint32_t sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
    uint4 v[kVectors / kReadThreads];
#pragma unroll
    for (int i = 0; i < kVectors / kReadThreads; ++i) v[i] = load_from_block(from + i * kReadThreads * 16);
#pragma unroll
    for (int i = 0; i < kVectors / kReadThreads; ++i) sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  if (sum == 0x12345677) *sink = sum;
  meet_cluster();
}

ClusterLatency latency_of(const Buffer& there, Stream& stream) {
  Latency found{};
  enqueue_copy(stream, &found, there.data(), sizeof found);
  stream.synchronize();
  const auto loads = static_cast<double>(found.loads);
  return {static_cast<double>(found.cycles) / loads, static_cast<double>(found.nanoseconds) / loads};
}

}  // namespace

std::size_t cluster_memory_bytes(const ClusterCalls& of) {
  const auto blocks = static_cast<std::size_t>(of.blocks) * static_cast<std::size_t>(of.clusters);
  return blocks * (4 * static_cast<std::size_t>(of.vectors) * sizeof(Vector16) + 4 * OffChipMemory::kFlagStride);
}

std::size_t cluster_shared_bytes(const ClusterCalls& of) {
  const auto n = static_cast<std::size_t>(of.vectors) * sizeof(Vector16);
  if (!is_on_chip(of.route)) return n;
  const bool slots = of.reduces && of.route != ClusterRoute::one_step && of.route != ClusterRoute::in_bulk;
  return n + 2 * n * (slots ? 1 : static_cast<std::size_t>(of.blocks));
}

void enqueue_cluster_calls(const ClusterCalls& of, Stream& stream) {
  // Each block has an SM to itself, as in a fused kernel.
  launch_sm90(kBenchCluster, cluster_calls,
              {.grid = dim3(static_cast<unsigned>(of.blocks * of.clusters)),
               .block = dim3(kCallThreads),
               .shared_bytes = std::max(cluster_shared_bytes(of), kMostOfBlock),
               .cluster = static_cast<unsigned>(of.blocks),
               .programmatic = false},
              stream, of, waits_of(stream, "bench cluster"));
}

ClusterLatency measure_cluster_latency(int blocks, Stream& stream) {
  const Buffer there(sizeof(Latency), stream.device());
  launch_sm90(kBenchCluster, chase_shared,
              {.grid = dim3(static_cast<unsigned>(blocks)),
               .block = dim3(1),
               .cluster = static_cast<unsigned>(blocks),
               .programmatic = false},
              stream, reinterpret_cast<Latency*>(const_cast<std::byte*>(there.data())));
  return latency_of(there, stream);
}

ClusterLatency measure_global_latency(Stream& stream) {
  // A permutation with one cycle, a line of 128 bytes a step.
  constexpr std::size_t kLines = std::size_t{768} << 10, kWords = 32;  // 96 MiB
  std::vector<std::uint32_t> order(kLines), chain(kLines * kWords);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin() + 1, order.end(), std::mt19937(1));
  for (std::size_t i = 0; i < kLines; ++i)
    chain[order[i] * kWords] = order[(i + 1) % kLines] * static_cast<std::uint32_t>(kWords);
  Buffer there(chain.size() * sizeof(std::uint32_t), stream.device()), result(sizeof(Latency), stream.device());
  enqueue_copy(stream, there.data(), chain.data(), there.size_bytes());
  launch_sm90(kBenchCluster, chase_global, {.grid = dim3(1), .block = dim3(1), .programmatic = false}, stream,
              reinterpret_cast<const std::uint32_t*>(there.data()), reinterpret_cast<Latency*>(result.data()));
  return latency_of(result, stream);
}

int active_blocks(int blocks_of_cluster, Device device) {
  const int clusters = clusters_of_device(
      kBenchCluster, reinterpret_cast<const void*>(cluster_calls),
      {.block = dim3(kCallThreads), .shared_bytes = kMostOfBlock, .cluster = static_cast<unsigned>(blocks_of_cluster)},
      device);
  return clusters * blocks_of_cluster;
}

double enqueue_cluster_reads(int blocks, int passes, void* sink, Stream& stream) {
  const LaunchShape one{
      .block = dim3(kReadThreads), .shared_bytes = kReadBytes, .cluster = static_cast<unsigned>(blocks)};
  const int clusters =
      clusters_of_device(kBenchCluster, reinterpret_cast<const void*>(read_neighbour), one, stream.device());
  LaunchShape all = one;
  all.grid = dim3(static_cast<unsigned>(clusters * blocks));
  all.programmatic = false;
  launch_sm90(kBenchCluster, read_neighbour, all, stream, passes, static_cast<std::uint32_t*>(sink));
  return static_cast<double>(clusters * blocks) * passes * kReadBytes;
}

}  // namespace heddle
