// The reduction of GEMM + reduce-scatter and GEMM + all-reduce of few rows, by packets that carry their own arrival.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/low_latency.cuh"
#include "device/packet_sum.cuh"
#include "device/unrolled.cuh"
#include "device/widen.h"
#include "fused/packet_inbox.h"
#include "fused/shards.h"

namespace heddle {

enum class SmallSum : std::uint8_t {
  scattered,  // a rank pushes each other rank the rows that it sums
  one_shot,   // all rows to all ranks, each of which sums all
  two_phase   // as scattered; then each rank pushes its sums to all
};

// Of an all-reduce: where more bytes than these are summed, two trips take less than (ranks - 1) times the bytes, on
// two and on four H200s (collectives/algorithm.cpp).
inline constexpr std::size_t kOneShotSumBytes = std::size_t{512} << 10;

// The rows that each rank sums, in packets, row after row; the last packet of a row may be shorter.
struct SumPackets {
  SmallSum form;
  Shards rows;     // of the sum, by the rank that takes it
  std::int64_t n;  // floats of a row

  HEDDLE_HOST_DEVICE std::uint32_t of_row() const {
    return static_cast<std::uint32_t>(packets_of(static_cast<std::size_t>(n) * sizeof(float)));
  }
  HEDDLE_HOST_DEVICE std::int64_t first_row(int rank) const {
    return form == SmallSum::one_shot ? 0 : rows.begin(rank);
  }
  HEDDLE_HOST_DEVICE std::uint32_t rows_of(int rank) const {
    return static_cast<std::uint32_t>(form == SmallSum::one_shot ? rows.total() : rows.count(rank));
  }
  HEDDLE_HOST_DEVICE std::uint32_t count(int rank) const { return rows_of(rank) * of_row(); }
  std::uint32_t most() const {
    std::uint32_t most = 0;
    for (int rank = 0; rank < rows.ranks; ++rank) most = std::max(most, count(rank));
    return most;
  }
  // Of a rank's inbox.
  std::size_t of_inbox() const {
    return std::size_t{form == SmallSum::two_phase ? 2U : 1U} * static_cast<std::size_t>(rows.ranks) * most();
  }

  static SumPackets of_all_reduce(const Shards& rows, std::int64_t n) {
    const std::size_t bytes = static_cast<std::size_t>(rows.total() * n) * sizeof(float);
    return {bytes <= kOneShotSumBytes ? SmallSum::one_shot : SmallSum::two_phase, rows, n};
  }
};

// Sums are in float32 and rank order: all ranks have equal bits. Every rank gets as many packets as the one that sums
// most rows; those behind its own rows have no data. So every rank hears from every other in each call, as it must
// (device/low_latency.cuh). A lane waits for packets of the indices that it has sent itself; so either all
// groups of a rank run at once, or all ranks have as many and begin them in order.
// Inbox: products [rank][packet of this rank's rows], then, in two phases, sums [rank][packet of its rows].
// Y: float, or, of a reduce-scatter, a 16-bit float, to which sums are rounded.
template <SmallSum kForm, class Y = float>
struct ReduceSmallM {
  static_assert(std::is_same_v<Y, float> || kForm == SmallSum::scattered, "sums that travel on are not rounded");

  SumPackets packets;  // of this form
  std::uint32_t most;  // packets.most()
  PacketMemory memory;
  const float* product;  // [M, n], packed
  Y* y;                  // this rank's rows, or, where sums go to all, all rows
  std::int64_t y_stride;

  template <VotingGroup G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers) const {
    const Epoch epoch = begin_epoch(group, memory);
    const FloatSlots products = float_slots(memory, epoch);
    const std::size_t of_phase = static_cast<std::size_t>(peers.size) * most;
    const FloatSlots sums = products + of_phase;
    const auto all = [&](int) { return std::size_t{most}; };
    const auto own = [&](std::size_t i) { return product_packet(peers.rank, i); };
    if constexpr (kForm == SmallSum::one_shot)
      push_to_all(group, peers, products, most, own);
    else
      push_to_each<kAtOnce>(group, peers, products, most, all,
                            [&](int owner, std::size_t i) { return product_packet(owner, i); });
    clear_and_count(group, memory, epoch, kForm == SmallSum::two_phase ? 2 * of_phase : of_phase);

    PacketSum<float> sum;
    const auto add = [&](std::size_t i, int p, const Packet& packet) {
      if (p == 0)
        sum.start(packet);
      else
        sum.add(packet);
      if (p < peers.size - 1) return;
      const Packet total = sum.rounded();
      store(peers.rank, i, total);
      if constexpr (kForm == SmallSum::two_phase) {
        const FloatSlots place = sums + (static_cast<std::size_t>(peers.rank) * most + i);
        for (int step = 1; step < peers.size; ++step)
          place.push(peers, AllToAll{peers.size}.at(peers.rank, step).to, total);
      }
    };
    if (!receive_in_rank_order<kAtOnce>(group, peers, "small M: sum", products, most, all, own, add)) return;
    if constexpr (kForm == SmallSum::two_phase)
      static_cast<void>(receive_in_rank_order<kAtOnce>(
          group, peers, "small M: sums", sums, most, [&](int p) { return p == peers.rank ? 0 : std::size_t{most}; },
          [](std::size_t) { return Packet{}; },
          [&](std::size_t i, int p, const Packet& packet) { store(p, i, packet); }));
  }

 private:
  static constexpr int kFloats = static_cast<int>(kPacketBytes / sizeof(float));
  static constexpr int kAtOnce = 4;  // ranks whose packets a lane sends or awaits together

  HEDDLE_HOST_DEVICE std::size_t row_bytes() const { return static_cast<std::size_t>(packets.n) * sizeof(float); }

  // Packet i of this rank's product of the rows that `owner` sums.
  HEDDLE_HOST_DEVICE Packet product_packet(int owner, std::size_t i) const {
    const std::uint32_t index = static_cast<std::uint32_t>(i), of_row = packets.of_row();
    if (index >= packets.count(owner)) return Packet{};
    const float* const row = product + (packets.first_row(owner) + index / of_row) * packets.n;
    return load_packet(reinterpret_cast<const std::byte*>(row), index % of_row, row_bytes());
  }
  // To y, packet i of the sum of the rows that `owner` sums.
  HEDDLE_HOST_DEVICE void store(int owner, std::size_t i, const Packet& sum) const {
    const std::uint32_t index = static_cast<std::uint32_t>(i), of_row = packets.of_row();
    if (index >= packets.count(owner)) return;
    const std::int64_t first = kForm == SmallSum::two_phase ? packets.first_row(owner) : 0;
    Y* const row = y + (first + index / of_row) * y_stride;
    if constexpr (std::is_same_v<Y, float>)
      store_packet(reinterpret_cast<std::byte*>(row), index % of_row, row_bytes(), sum);
    else
      store_rounded(row, std::int64_t{index % of_row} * kFloats, sum);
  }
  // The four sums of a packet to columns `column` on, as far as there are so many.
  HEDDLE_HOST_DEVICE void store_rounded(Y* row, std::int64_t column, const Packet& sum) const {
    struct alignas(2 * sizeof(std::uint32_t)) Pairs {
      std::uint32_t pair[2];
    };
    Pairs pairs;
    unrolled<2>([&](auto i) {
      pairs.pair[i] = narrow_pair<Y>(std::bit_cast<float>(static_cast<std::uint32_t>(sum.words[i])),
                                     std::bit_cast<float>(static_cast<std::uint32_t>(sum.words[i] >> 32)));
    });
    if (column + kFloats <= packets.n && is_aligned(row + column, sizeof(Pairs))) {
      *reinterpret_cast<Pairs*>(row + column) = pairs;
      return;
    }
    unrolled<kFloats>([&](auto i) {
      if (column + i < packets.n) row[column + i] = Y{static_cast<std::uint16_t>(pairs.pair[i / 2] >> (16 * (i % 2)))};
    });
  }
};

}  // namespace heddle
