// The regimes of few and of some tokens: packets that carry their own arrival (device/low_latency.cuh). A row is one
// block's work on every rank, so a block waits for the same block of the others alone. A wait that gives up does not end
// the loops: every lane comes to the sums over the group.
#pragma once

#include "device/low_latency.cuh"
#include "fused/all_reduce_norm/norm_memory.h"
#include "fused/all_reduce_norm/norm_rows.cuh"

namespace heddle {

inline constexpr int kNormAtOnce = 4;  // ranks whose packets a lane waits for together

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
      float squares = 0;
      PacketSum<X> sum;
      const auto add = [&](std::size_t i, int p, const Packet& packet) {
        if (p == 0)
          sum.start(packet);
        else
          sum.add(packet);
        if (p == peers.size - 1) squares += rows.add_packet(token, i, sum);
      };
      static_cast<void>(receive_in_rank_order<kNormAtOnce>(
          lanes, peers, "norm: one-shot", slots + static_cast<std::size_t>(token) * row, packets,
          [&](int) { return packets; }, own(token), add));
      rows.norm_row(lanes, token, squares, sums_of_block(), turn++, [](std::size_t, const Packet&) {});
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
    const auto share = [&](int owner, std::int64_t j) {
      return [this, token = shards.begin(owner) + j](std::size_t i) {
        return load_packet(rows.x_row(token), i, rows.x_bytes());
      };
    };

    for (std::int64_t j = group.block(); j < most; j += group.blocks())
      push_to_each<kNormAtOnce>(
          lanes, peers, shares_of(j), packets,
          [&](int owner) { return j < shards.count(owner) ? packets : std::size_t{0}; },
          [&](int owner, std::size_t i) { return share(owner, j)(i); });
    clear_and_count(group, memory, epoch, static_cast<std::size_t>(most) * size * (packets + out_packets));

    const std::int64_t mine = shards.begin(peers.rank), my_count = shards.count(peers.rank);
    int turn = 0;
    for (std::int64_t j = group.block(); j < my_count; j += group.blocks()) {
      float squares = 0;
      PacketSum<X> sum;
      const auto add = [&](std::size_t i, int p, const Packet& packet) {
        if (p == 0)
          sum.start(packet);
        else
          sum.add(packet);
        if (p == peers.size - 1) squares += rows.add_packet(mine + j, i, sum);
      };
      static_cast<void>(receive_in_rank_order<kNormAtOnce>(
          lanes, peers, "norm: shares", shares_of(j), packets, [&](int) { return packets; }, share(peers.rank, j),
          add));
      const FloatSlots place = normed_of(j) + static_cast<std::size_t>(peers.rank) * out_packets;
      rows.norm_row(lanes, mine + j, squares, sums_of_block(), turn++, [&](std::size_t i, const Packet& packet) {
        for (int step = 1; step < peers.size; ++step)
          (place + i).push(peers, AllToAll{peers.size}.at(peers.rank, step).to, packet);
      });
    }
    for (std::int64_t j = group.block(); j < most; j += group.blocks()) {
      const auto keep = [&](std::size_t i, int p, const Packet& packet) {
        if (p != peers.rank) store_packet(rows.y_row(shards.begin(p) + j), i, rows.y_bytes(), packet);
      };
      static_cast<void>(receive_in_rank_order<kNormAtOnce>(
          lanes, peers, "norm: rows", normed_of(j), out_packets,
          [&](int p) { return p != peers.rank && j < shards.count(p) ? out_packets : std::size_t{0}; },
          [](std::size_t) { return Packet{}; }, keep));
    }
  }
};

}  // namespace heddle
