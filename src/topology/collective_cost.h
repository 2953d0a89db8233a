// What a collective must cost: bytes over the wire of one rank, and the time they take at the wire's rate.
//
// Bytes are what each rank sends (and as many are what it receives) by the best algorithm there is without reduction
// inside the network; `bytes` is the size of the larger of a rank's two buffers. The rate is that of one direction of a
// rank's link.
#pragma once

namespace heddle {

// A rank's part is summed by its owner and sent to all: (n-1)/n of the bytes go out as shares, as many as sums.
constexpr double all_reduce_traffic(int ranks, double bytes) {
  return 2.0 * (ranks - 1) / ranks * bytes;
}

// Reduce-scatter, all-gather and all-to-all: everything but the own piece.
constexpr double exchange_traffic(int ranks, double bytes) {
  return 1.0 * (ranks - 1) / ranks * bytes;
}

// Every rank but the root receives all of it, and no link carries more where the ranks pass pieces on.
constexpr double broadcast_traffic(int ranks, double bytes) {
  return ranks > 1 ? bytes : 0.0;
}

constexpr double wire_seconds(double traffic_bytes, double bytes_per_second) {
  return traffic_bytes / bytes_per_second;
}

// Measured on H200s joined by NVLink (NV18), one pair reading; with all GPUs reading at once it was 338e9.
inline constexpr double kH200PairBytesPerSecond = 370e9;

static_assert(all_reduce_traffic(4, 16.0) == 24.0 && exchange_traffic(4, 16.0) == 12.0);
static_assert(all_reduce_traffic(1, 16.0) == 0.0 && broadcast_traffic(1, 16.0) == 0.0);

}  // namespace heddle
