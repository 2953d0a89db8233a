// For large buffers: plain loads and stores of peer memory between flag barriers. Memory that peers cannot reach is
// staged: copied into the symmetric heap and out of it, one round at a time.
//
// Block b of a rank exchanges bytes only with blocks b of the other ranks, so it waits only for those: every copy and
// sum below assigns packets to blocks in the same way on all ranks.
#pragma once

#include <algorithm>
#include <type_traits>

#include "collectives/collective_memory.h"
#include "device/block_barrier.cuh"
#include "device/low_latency.cuh"
#include "device/one_lane.h"
#include "device/packet_sum.cuh"
#include "device/pieces.cuh"

namespace heddle {

// The barrier of this block with the same block of all ranks.
template <Group G, PeerAddressing P>
HEDDLE_HOST_DEVICE BlockBarrier<G, P> barrier_of(const G& group, const P& peers, const CollectiveMemory& memory,
                                                 Tag tag) {
  return {group, peers, memory.flags + static_cast<std::size_t>(group.block() * peers.size),
          memory.blocks[group.block()].barriers_passed, tag};
}

// Copies `bytes`, of any alignment, to the addresses destination(0 .. n - 1). The blocks of the rank share the work.
template <Group G, class Destination>
HEDDLE_HOST_DEVICE void copy_to(const G& group, int n, const Destination& destination, const std::byte* source,
                                std::size_t bytes) {
  if constexpr (kOneLane<G>) {
    for (int d = 0; d < n; ++d)
      if (bytes != 0 && destination(d) != source) std::memcpy(destination(d), source, bytes);
  } else {
    constexpr int kInFlight = 4;
    const std::size_t packets = packets_of(bytes), stride = packet_stride(group);
    for (std::size_t first = first_packet(group); first < packets; first += kInFlight * stride) {
      Packet some[kInFlight];
      unrolled<kInFlight>([&](auto k) {
        if (first + k * stride < packets) some[k] = load_packet(source, first + k * stride, bytes);
      });
      for (int d = 0; d < n; ++d) {
        std::byte* const to = destination(d);
        unrolled<kInFlight>([&](auto k) {
          if (first + k * stride < packets) store_packet(to, first + k * stride, bytes, some[k]);
        });
      }
    }
  }
}

template <Group G>
HEDDLE_HOST_DEVICE void copy_here(const G& group, std::byte* destination, const std::byte* source, std::size_t bytes) {
  copy_to(
      group, 1, [=](int) { return destination; }, source, bytes);
}

namespace detail {

// kCount packets i, i + stride, ...: stores the sum of packet i of source(p), p < n, to destination(0 .. m - 1).
template <class T, int kCount, int kAtOnce, class Source, class Destination>
HEDDLE_HOST_DEVICE void sum_packets(int n, const Source& source, int m, const Destination& destination,
                                    std::size_t bytes, std::size_t i, std::size_t stride) {
  PacketSum<T> sums[kCount];
  for (int first = 0; first < n; first += kAtOnce) {
    Packet in[kAtOnce][kCount] = {};
    unrolled<kAtOnce>([&](auto k) {
      if (first + k >= n) return;
      const std::byte* const from = source(first + k);
      unrolled<kCount>([&](auto c) { in[k][c] = load_packet(from, i + c * stride, bytes); });
    });
    unrolled<kAtOnce>([&](auto k) {
      if (first + k >= n) return;
      unrolled<kCount>([&](auto c) {
        if (first + k == 0)
          sums[c].start(in[k][c]);
        else
          sums[c].add(in[k][c]);
      });
    });
  }
  Packet out[kCount];
  unrolled<kCount>([&](auto c) { out[c] = sums[c].rounded(); });
  for (int d = 0; d < m; ++d) {
    std::byte* const to = destination(d);
    unrolled<kCount>([&](auto c) { store_packet(to, i + c * stride, bytes, out[c]); });
  }
}

template <class T>
void round_to(float x, T& y) {
  if constexpr (std::is_same_v<T, float>)
    y = x;
  else if constexpr (std::is_same_v<T, bfloat16>)
    y = to_bfloat16(x);
  else
    y = to_float16(x);
}

// The same on one CPU thread: rows that fit into its L1 cache, in loops that the compiler vectorises.
template <class T, class Source, class Destination>
void sum_rows(int n, const Source& source, int m, const Destination& destination, std::size_t bytes) {
  constexpr std::size_t kRow = 1024;
  float sums[kRow];
  T row[kRow];
  for (std::size_t begin = 0; begin < bytes; begin += kRow * sizeof(T)) {
    const std::size_t size = std::min(bytes - begin, kRow * sizeof(T));
    const std::size_t count = size / sizeof(T);
    for (int p = 0; p < n; ++p) {
      std::memcpy(row, source(p) + begin, size);  // aligned from here on, whatever the caller's memory is
      if (p == 0)
        for (std::size_t i = 0; i < count; ++i) sums[i] = to_float(row[i]);
      else
        for (std::size_t i = 0; i < count; ++i) sums[i] += to_float(row[i]);
    }
    for (std::size_t i = 0; i < count; ++i) round_to(sums[i], row[i]);
    for (int d = 0; d < m; ++d) std::memcpy(destination(d) + begin, row, size);
  }
}

}  // namespace detail

// Sums `bytes` of elements over source(0 .. n - 1), in that order, and stores the sum to destination(0 .. m - 1), which
// may be among the sources: an element is read everywhere before it is written anywhere.
template <class T, int kAtOnce, Group G, class Source, class Destination>
HEDDLE_HOST_DEVICE void sum_to(const G& group, int n, const Source& source, int m, const Destination& destination,
                               std::size_t bytes) {
  if constexpr (kOneLane<G>) {
    detail::sum_rows<T>(n, source, m, destination, bytes);
  } else {
    constexpr int kInFlight = kAtOnce >= 8 ? 1 : 8 / kAtOnce;  // packets per rank; 128 bytes per lane do not spill
    const std::size_t packets = packets_of(bytes), whole = bytes / kPacketBytes, stride = packet_stride(group);
    std::size_t i = first_packet(group);
    for (; i + (kInFlight - 1) * stride < whole; i += kInFlight * stride)
      detail::sum_packets<T, kInFlight, kAtOnce>(n, source, m, destination, bytes, i, stride);
    for (; i < packets; i += stride) detail::sum_packets<T, 1, kAtOnce>(n, source, m, destination, bytes, i, stride);
  }
}

}  // namespace heddle
