// Analytical model of collectives: bytes that a rank must send, the time at the link's rate, and the expected time of
// the algorithms of collectives/ on H200s.
//
// Bytes are what each rank sends (it receives as many) with the best algorithm that does not reduce inside the network.
// `bytes` is the size of the larger of a rank's two buffers. The rate is that of one direction of a rank's link.
#pragma once

namespace heddle {

// Each rank owns a piece: (n-1)/n of the bytes go out as contributions to the other pieces, as many as sums.
constexpr double all_reduce_traffic(int ranks, double bytes) {
  return 2.0 * (ranks - 1) / ranks * bytes;
}

// Reduce-scatter, all-gather and all-to-all: everything but the rank's own piece.
constexpr double exchange_traffic(int ranks, double bytes) {
  return 1.0 * (ranks - 1) / ranks * bytes;
}

// Every rank but the root receives all bytes. If ranks pass pieces on, no link carries more.
constexpr double broadcast_traffic(int ranks, double bytes) {
  return ranks > 1 ? bytes : 0.0;
}

// All-reduce in which every rank sends everything to all others.
constexpr double one_shot_traffic(int ranks, double bytes) {
  return (ranks - 1) * bytes;
}

constexpr double wire_seconds(double traffic_bytes, double bytes_per_second) {
  return traffic_bytes / bytes_per_second;
}

// Measured on H200s with NVLink (NV18), one pair reading; with all GPUs reading at once it was 338e9.
inline constexpr double kH200PairBytesPerSecond = 370e9;

// Time of an algorithm: a part independent of size (launch, a load, the round trips or barriers it waits for), a part
// per additional rank, and the traffic at the rate it reaches. For the best number of blocks.
struct CollectiveFit {
  double fixed_seconds;
  double seconds_a_peer;
  double bytes_per_second;

  constexpr double seconds(int ranks, double traffic_bytes) const {
    return fixed_seconds + (ranks - 1) * seconds_a_peer + traffic_bytes / bytes_per_second;
  }
};

// Fitted by tools/fit_collectives.py to measurements on two and four H200s (docs/notes/collectives.md),
// cold cache, 1 KiB to 256 MiB. docs/notes/collectives.md has the errors: at most 5.2 %, but 14 % for pushed
// reduce-scatters and all-to-alls. For more ranks these are predictions.
namespace h200 {
inline constexpr CollectiveFit kOneShotAllReduce{2.369e-6, 0.155e-6, 310.8e9},
    kTwoPhaseAllReduce{2.432e-6, 0.210e-6, 300.4e9}, kPipelinedAllReduce{7.554e-6, 0.389e-6, 352.9e9},
    kPushedAllGather{2.409e-6, 0.116e-6, 286.2e9}, kDirectAllGather{5.199e-6, 0.603e-6, 351.2e9},
    kPushedReduceScatter{2.473e-6, 0.153e-6, 270.4e9}, kDirectReduceScatter{7.079e-6, 1.262e-6, 328.8e9},
    kPushedAllToAll{2.450e-6, 0.175e-6, 266.4e9}, kDirectAllToAll{8.162e-6, 0, 336.5e9};
}  // namespace h200

static_assert(all_reduce_traffic(4, 16.0) == 24.0 && exchange_traffic(4, 16.0) == 12.0);
static_assert(all_reduce_traffic(1, 16.0) == 0.0 && broadcast_traffic(1, 16.0) == 0.0);
static_assert(CollectiveFit{1.0, 0.5, 8.0}.seconds(3, one_shot_traffic(3, 16.0)) == 6.0);

}  // namespace heddle
