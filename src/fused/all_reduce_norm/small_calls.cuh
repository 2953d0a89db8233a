// The regimes of few and of some tokens: packets that carry their own arrival (device/low_latency.cuh). A row is one
// block's work on every rank, so a block waits for the same block of the others alone. A wait that gives up does not end
// the loops: every lane comes to the sums over the group.
#pragma once

#include "device/low_latency.cuh"
#include "fused/all_reduce_norm/norm_memory.h"
#include "fused/all_reduce_norm/norm_rows.cuh"

namespace heddle {

inline constexpr int kNormAtOnce = 4;  // ranks whose packets a lane waits for together

// The same four packets in flight where a lane has two of a row, as of 8192 bfloat16 on 512 lanes: two packets of two ranks, so
// that a row takes one trip to memory where two ranks sum it.
inline constexpr int kRowPackets = 2, kRowRanks = 2;

// Packets of a row that a lane has together: number t is packet at(t).
struct RowPackets {
  std::size_t first, apart;

  template <Group G>
  HEDDLE_HOST_DEVICE static RowPackets of(const G& group) {
    return {first_packet(group), packet_stride(group)};
  }
  HEDDLE_HOST_DEVICE std::size_t at(int t) const { return first + static_cast<std::size_t>(t) * apart; }
  HEDDLE_HOST_DEVICE RowPackets next() const { return {first + kRowPackets * apart, apart}; }
};

// As push_to_each() for `some` packets of a row.
template <PeerAddressing P, class Count, class Source>
HEDDLE_HOST_DEVICE void push_row(const P& peers, const FloatSlots& slot, const RowPackets& some, const Count& packets,
                                 const Source& packet) {
  for (int first = 1; first < peers.size; first += kRowRanks) {
    Packet mine[kRowPackets][kRowRanks];
    const auto peer = [&](int k) { return AllToAll{peers.size}.at(peers.rank, first + k).to; };
    const auto each = [&](const auto& f) {
      unrolled<kRowPackets>([&](auto t) {
        unrolled<kRowRanks>([&](auto k) {
          if (first + k < peers.size && some.at(t) < packets(peer(k))) f(t, k);
        });
      });
    };
    each([&](auto t, auto k) { mine[t][k] = packet(peer(k), some.at(t)); });
    each([&](auto t, auto k) { (slot + some.at(t)).push(peers, peer(k), mine[t][k]); });
  }
}

// As receive_in_rank_order() for `some` packets of a row: take(t, i, p, packet i = some.at(t) of slot p), t a constant.
template <PeerAddressing P, class Count, class Own, class Take>
[[nodiscard]] HEDDLE_HOST_DEVICE bool receive_row(const P& peers, Tag tag, const FloatSlots& slots, std::size_t stride,
                                                  const RowPackets& some, const Count& packets, const Own& own,
                                                  const Take& take) {
  for (int first = 0; first < peers.size; first += kRowRanks) {
    const auto each = [&](const auto& f) {
      unrolled<kRowPackets>([&](auto t) {
        unrolled<kRowRanks>([&](auto k) {
          if (first + k < peers.size && some.at(t) < packets(first + k)) f(t, k);
        });
      });
    };
    const auto place = [&](int t, int p) { return slots.first + some.at(t) + static_cast<std::size_t>(p) * stride; };
    const int quick = quick_looks(peers);
    Packet come[kRowPackets][kRowRanks]{};
    each([&](auto t, auto k) {
      if (first + k == peers.rank) come[t][k] = own(some.at(t));
    });
    for (int looks = 0, late = -1, late_packet = 0;; late = -1, ++looks) {
      each([&](auto t, auto k) {
        if (first + k != peers.rank) come[t][k] = look(place(t, first + k));
      });
      each([&](auto t, auto k) {
        if (first + k == peers.rank || arrived(come[t][k])) return;
        late = first + k;
        late_packet = t;
      });
      if (late < 0) break;
      if (looks >= quick && !wait_for_packet(peers.waits, why(peers, late, tag), place(late_packet, late)))
        return false;
    }
    each([&](auto t, auto k) { take(t, some.at(t), first + k, come[t][k]); });
  }
  return true;
}

// The lanes of one block, as a group without other blocks: its packets are not shared out.
template <Group G>
struct OneBlock : G {
  HEDDLE_HOST_DEVICE explicit OneBlock(const G& group) : G(group) {}
  HEDDLE_HOST_DEVICE static constexpr int block() { return 0; }
  HEDDLE_HOST_DEVICE static constexpr int blocks() { return 1; }
};

// Of a block's sums over its lanes, on a GPU.
HEDDLE_HOST_DEVICE float* sums_of_block() {
#ifdef __CUDA_ARCH__
  __shared__ float sums[64];
  return sums;
#else
  return nullptr;
#endif
}

// Sums a row over the ranks, whose packets come to `slots`, adds the residual and normalises: norm_row() has emit and turn.
template <class X, class Y, Group G, PeerAddressing P, class Emit>
HEDDLE_HOST_DEVICE void sum_and_norm(const NormRows<X, Y>& rows, const OneBlock<G>& lanes, const P& peers, Tag tag,
                                     const FloatSlots& slots, std::int64_t token, int turn, const Emit& emit) {
  const std::size_t packets = rows.x_packets();
  const auto all = [&](int) { return packets; };
  const auto own = [&](std::size_t i) { return load_packet(rows.x_row(token), i, rows.x_bytes()); };
  const auto add = [](PacketSum<X>& sum, int p, const Packet& packet) {
    if (p == 0)
      sum.start(packet);
    else
      sum.add(packet);
  };
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(X) == sizeof(Y)) {
    if (rows.can_hold(lanes)) {
      const auto aligned = [x = reinterpret_cast<const Packet*>(rows.x_row(token))](std::size_t i) { return x[i]; };
      auto held = rows.hold(lanes, token);
      PacketSum<X> sums[kRowPackets];
      static_cast<void>(
          receive_row(peers, tag, slots, packets, RowPackets::of(lanes), all, aligned,
                      [&](auto t, std::size_t, int p, const Packet& packet) { add(sums[t], p, packet); }));
      return rows.add_and_norm(lanes, token, held, sums, sums_of_block(), turn, emit);
    }
  }
#endif
  float squares = 0;
  PacketSum<X> sum;
  static_cast<void>(receive_in_rank_order<kNormAtOnce>(lanes, peers, tag, slots, packets, all, own,
                                                       [&](std::size_t i, int p, const Packet& packet) {
                                                         add(sum, p, packet);
                                                         if (p == peers.size - 1)
                                                           squares += rows.add_packet(token, i, sum);
                                                       }));
  rows.norm_row(lanes, token, squares, sums_of_block(), turn, emit);
}

// Every rank pushes its rows to all others, sums all and normalises them: (N-1) S bytes a rank, one trip.
// Inbox: [token][rank][packet].
template <class X, class Y>
struct OneShotNorm {
  NormRows<X, Y> rows;

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const AllReduceNormMemory& memory) const {
    const OneBlock<G> lanes(group);
    const Epoch epoch = begin_epoch(group, memory);
    const FloatSlots slots = float_slots(memory, epoch);
    const std::size_t packets = rows.x_packets(), row = static_cast<std::size_t>(peers.size) * packets;
    const std::int64_t tokens = rows.rows.total();
    const auto own = [&](std::int64_t token) {
      return [this, token](std::size_t i) { return load_packet(rows.x_row(token), i, rows.x_bytes()); };
    };
    for (std::int64_t token = group.block(); token < tokens; token += group.blocks())
      push_to_all(lanes, peers, slots + static_cast<std::size_t>(token) * row, packets, own(token));
    clear_and_count(group, memory, epoch, static_cast<std::size_t>(tokens) * row);
    int turn = 0;
    for (std::int64_t token = group.block(); token < tokens; token += group.blocks()) {
      sum_and_norm(rows, lanes, peers, "norm: one-shot", slots + static_cast<std::size_t>(token) * row, token, turn++,
                   [](std::size_t, const Packet&) {});
    }
  }
};

// Rows go to their owners, normalised rows come from them: 2 (N-1)/N S bytes a rank, two trips. Every rank owns a row, so
// it hears from every other (device/low_latency.cuh).
// Inbox: shares [own row][rank][packet], then rows [row of an owner][owner][packet].
template <class X, class Y>
struct TwoPhaseNorm {
  NormRows<X, Y> rows;

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const AllReduceNormMemory& memory) const {
    const OneBlock<G> lanes(group);
    const EvenShards& shards = rows.rows;
    const Epoch epoch = begin_epoch(group, memory);
    const auto size = static_cast<std::size_t>(peers.size);
    const std::int64_t most = shards.count(0);  // the first shards are the largest
    const std::size_t packets = rows.x_packets(), out_packets = rows.y_packets();
    const FloatSlots shares = float_slots(memory, epoch);
    const FloatSlots normed = shares + static_cast<std::size_t>(most) * size * packets;
    const auto shares_of = [&](std::int64_t j) { return shares + static_cast<std::size_t>(j) * size * packets; };
    const auto normed_of = [&](std::int64_t j) { return normed + static_cast<std::size_t>(j) * size * out_packets; };
    for (std::int64_t j = group.block(); j < most; j += group.blocks())
      for (auto some = RowPackets::of(lanes); some.first < packets; some = some.next())
        push_row(
            peers, shares_of(j) + static_cast<std::size_t>(peers.rank) * packets, some,
            [&](int owner) { return j < shards.count(owner) ? packets : std::size_t{0}; },
            [&](int owner, std::size_t i) {
              return load_packet(rows.x_row(shards.begin(owner) + j), i, rows.x_bytes());
            });
    clear_and_count(group, memory, epoch, static_cast<std::size_t>(most) * size * (packets + out_packets));

    const std::int64_t mine = shards.begin(peers.rank), my_count = shards.count(peers.rank);
    int turn = 0;
    for (std::int64_t j = group.block(); j < my_count; j += group.blocks()) {
      const FloatSlots place = normed_of(j) + static_cast<std::size_t>(peers.rank) * out_packets;
      const auto push = [&](std::size_t i, const Packet& packet) {
        for (int step = 1; step < peers.size; ++step)
          (place + i).push(peers, AllToAll{peers.size}.at(peers.rank, step).to, packet);
      };
      sum_and_norm(rows, lanes, peers, "norm: shares", shares_of(j), mine + j, turn++, push);
    }
    for (std::int64_t j = group.block(); j < most; j += group.blocks()) {
      const auto keep = [&](auto, std::size_t i, int p, const Packet& packet) {
        store_packet(rows.y_row(shards.begin(p) + j), i, rows.y_bytes(), packet);
      };
      const auto others = [&](int p) { return p != peers.rank && j < shards.count(p) ? out_packets : std::size_t{0}; };
      for (auto some = RowPackets::of(lanes); some.first < out_packets; some = some.next())
        if (!receive_row(
                peers, "norm: rows", normed_of(j), out_packets, some, others, [](std::size_t) { return Packet{}; },
                keep))
          return;
    }
  }
};

}  // namespace heddle
