#include "cluster_kernels.h"

#include "base/dtype_switch.h"
#include "device/cluster/cluster_gather.h"
#include "device/cluster/cluster_reduce.h"
#include "device/cluster/cluster_sm90.cuh"
#include "device/cluster/off_chip_sm90.cuh"
#include "device/launch_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernel
using schedule::Peers;

constexpr int kVectors = kClusterTestVectors, kThreads = 128;

struct TestShared {
  ReduceBarriers<ClusterMbarrier> reduce;
  GatherBarriers<ClusterMbarrier> gather;
  Vector16 data[kVectors];
  Vector16 slots[2 * kVectors];
  Vector16 segments[2 * kMostClusterBlocks * kVectors];
};

// Now and then a warp waits up to four microseconds.
__device__ void dawdle(std::uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  if (state >> 28 == 0) __nanosleep(state >> 16 & 0xfff);
}

template <class T>
constexpr int kElements = static_cast<int>(sizeof(Vector16) / sizeof(T));

template <class T>
__device__ T number_of(int value) {
  if constexpr (std::is_same_v<T, float>)
    return static_cast<float>(value);
  else
    return {static_cast<std::uint16_t>(narrow_pair<T>(static_cast<float>(value), 0))};
}

template <class T>
__device__ Vector16 vector_of(int call, int rank, int i) {
  Vector16 v;
  auto* const elements = reinterpret_cast<T*>(&v);
  for (int e = 0; e < kElements<T>; ++e) elements[e] = number_of<T>(whole_number_of(call, rank, i * kElements<T> + e));
  return v;
}

__device__ bool same(const Vector16& a, const Vector16& b) {
  return a.words[0] == b.words[0] && a.words[1] == b.words[1] && a.words[2] == b.words[2] && a.words[3] == b.words[3];
}

// One block's means of reducing and gathering in each way.
struct Means {
  const ClusterBlock& team;
  TestShared& shared;
  ClusterReducer<ClusterBlock, ClusterMbarrier> reducer;
  ClusterGatherer<ClusterBlock, ClusterMbarrier> gatherer;
  OffChipGatherer off_chip;

  template <class T, ReduceOp kOp>
  __device__ void reduce(ClusterWay way, int count) {
    OffChipSum<T, kOp> sum(shared.data, team.blocks());
    switch (way) {
      case ClusterWay::pairs:
      case ClusterWay::offset:
        return reducer.template reduce<T, kOp>(shared.data, count);
      case ClusterWay::directly:
      case ClusterWay::in_bulk:
        return gatherer.template reduce_directly<T, kOp>(shared.data, count);
      case ClusterWay::two_steps:
        return gatherer.template reduce_in_two_steps<T, kOp>(shared.data, count);
      case ClusterWay::by_packets:
        return off_chip.by_packets(shared.data, count, sum);
      case ClusterWay::by_flags:
        return off_chip.by_flags(shared.data, count, sum);
    }
  }

  // use(owner, i, vector) for each vector of each block; all lanes together see all of them.
  template <class Use>
  __device__ void gather(ClusterWay way, int count, Use use) {
    if (way == ClusterWay::by_packets) return off_chip.by_packets(shared.data, count, use);
    if (way == ClusterWay::by_flags) return off_chip.by_flags(shared.data, count, use);
    const bool turned = way == ClusterWay::pairs || way == ClusterWay::offset;
    const Vector16* const all = turned                       ? gatherer.gather(shared.data, count)
                                : way == ClusterWay::in_bulk ? gatherer.gather_in_bulk(shared.data, count)
                                                             : gatherer.gather_directly(shared.data, count);
    for (int owner = 0; owner < team.blocks(); ++owner) {
      const int segment = turned ? gatherer.segment_of(owner) : owner;
      for (int i = team.lane(); i < count; i += team.lanes()) use(owner, i, all[segment * count + i]);
    }
  }
};

template <class T, ReduceOp kOp>
__global__ void __launch_bounds__(kThreads)
    cluster_calls(const __grid_constant__ ClusterTestCall test, const __grid_constant__ KernelWaits waits) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<TestShared*>(memory);
  const ClusterBlock team;
  if (team.lane() == 0) {
    shared.reduce.init(team);
    shared.gather.init();
    publish_barriers();
  }
  meet_cluster();
  const int cluster = static_cast<int>(blockIdx.x) / team.blocks(), rank = team.block();
  const Peers peers = test.way == ClusterWay::offset ? Peers::offset : Peers::pairs;
  Vector16* const off_chip = test.memory + cluster * off_chip_vectors();
  Means means{team,
              shared,
              {team, peers, shared.reduce, shared.slots, kVectors, waits},
              {team, peers, shared.gather, shared.segments, kVectors, waits},
              {team,
               {off_chip, reinterpret_cast<std::uint32_t*>(off_chip + off_chip_vectors() - kMostClusterBlocks * 8)},
               kVectors,
               0,
               waits}};
  std::uint32_t random = blockIdx.x * 977 + threadIdx.x / 32 * 31 + 1;
  int wrong = 0;
  for (int call = 0; call < test.calls; ++call) {
    const int whole = 1 + call * 7 % kVectors;
    const int count =
        test.way == ClusterWay::two_steps ? max(whole / team.blocks(), 1) * team.blocks() : whole;  // parts
    for (int i = team.lane(); i < count; i += team.lanes()) shared.data[i] = vector_of<T>(call, rank, i);
    if (test.dawdles) dawdle(random);
    if (test.reduces) {
      means.template reduce<T, kOp>(test.way, count);
      for (int i = team.lane(); i < count; i += team.lanes()) {
        Vector16 expected;
        auto* const elements = reinterpret_cast<T*>(&expected);
        for (int e = 0; e < kElements<T>; ++e) {
          int result = whole_number_of(call, 0, i * kElements<T> + e);
          for (int other = 1; other < team.blocks(); ++other) {
            const int number = whole_number_of(call, other, i * kElements<T> + e);
            result = kOp == ReduceOp::sum ? result + number : max(result, number);
          }
          elements[e] = number_of<T>(result);
        }
        wrong += same(expected, shared.data[i]) ? 0 : 1;
      }
    } else {
      means.gather(test.way, count, [&](int owner, int i, const Vector16& v) {
        wrong += same(v, vector_of<T>(call, owner, i)) ? 0 : 1;
      });
    }
    if (test.dawdles) dawdle(random);
  }
  if (wrong > 0) atomicAdd(test.wrong, wrong);
  if (test.in != nullptr) {
    for (int i = team.lane(); i < kVectors; i += team.lanes()) shared.data[i] = test.in[rank * kVectors + i];
    means.template reduce<T, kOp>(test.way, kVectors);
    if (cluster == 0)
      for (int i = team.lane(); i < kVectors; i += team.lanes()) test.out[rank * kVectors + i] = shared.data[i];
  }
  meet_cluster();
}

}  // namespace

void enqueue_cluster_calls(const ClusterTestCall& test, Stream& stream) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(test.blocks * test.clusters)),
                          .block = dim3(kThreads),
                          .shared_bytes = sizeof(TestShared),
                          .cluster = static_cast<unsigned>(test.blocks),
                          .programmatic = false};
  const KernelWaits waits = waits_of(stream, "cluster test");
  with_element(test.dtype, [&]<class T>() {
    if (test.op == ReduceOp::sum)
      launch_sm90("cluster test", cluster_calls<T, ReduceOp::sum>, shape, stream, test, waits);
    else
      launch_sm90("cluster test", cluster_calls<T, ReduceOp::max>, shape, stream, test, waits);
  });
}

}  // namespace heddle
