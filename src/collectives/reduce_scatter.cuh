// The algorithms of reduce_scatter. They sum as those of all_reduce.cuh do.
#pragma once

#include "collectives/direct.cuh"

namespace heddle {

// Every rank pushes its share of each piece to the owner, which sums. One trip.
template <class T, int kAtOnce>
struct LowLatencyReduceScatter {
  const std::byte* input;  // one piece per rank
  std::byte* output;       // one piece; may be this rank's piece of input
  std::size_t bytes;       // of a piece, > 0

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    const Epoch epoch = begin_epoch(group, memory);
    const FloatSlots slots = float_slots(memory, epoch);
    const std::size_t packets = packets_of(bytes);
    const auto all = [&](int) { return packets; };
    const auto piece = [&](int p) { return input + static_cast<std::size_t>(p) * bytes; };

    push_to_each<kAtOnce>(group, peers, slots, packets, all,
                          [&](int peer, std::size_t i) { return load_packet(piece(peer), i, bytes); });
    clear_and_count(group, memory, epoch, static_cast<std::size_t>(peers.size) * packets);
    PacketSum<T> sum;
    const auto add = [&](std::size_t i, int p, const Packet& packet) {
      if (p == 0)
        sum.start(packet);
      else
        sum.add(packet);
      if (p == peers.size - 1) store_packet(output, i, bytes, sum.rounded());
    };
    const auto own = [&](std::size_t i) { return load_packet(piece(peers.rank), i, bytes); };
    static_cast<void>(receive_in_rank_order<kAtOnce>(group, peers, "reduce-scatter", slots, packets, all, own, add));
  }
};

// Each rank loads all ranks' shares of its piece and sums them.
template <class T, int kAtOnce>
struct DirectReduceScatter {
  const std::byte* input;
  std::byte* output;
  std::size_t bytes;  // of a piece
  bool symmetric;     // input lies in symmetric memory, and it and the pieces are aligned to 16 bytes

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    auto barrier = barrier_of(group, peers, memory, "reduce-scatter");
    const std::size_t slot = memory.piece_bytes, round = symmetric ? bytes : slot;
    for (std::size_t begin = 0; begin < bytes; begin += round) {
      const std::size_t size = bytes - begin < round ? bytes - begin : round;
      const auto piece = [&](int p) { return input + static_cast<std::size_t>(p) * bytes + begin; };
      const auto staged = [&](int p) { return memory.staging + static_cast<std::size_t>(p) * slot; };
      if (!symmetric)
        for (int p = 0; p < peers.size; ++p)
          if (p != peers.rank) copy_here(group, staged(p), piece(p), size);
      if (!barrier()) break;
      const auto share = [&](int p) -> const std::byte* {
        if (p == peers.rank) return piece(peers.rank);
        return symmetric ? peers.at(p, piece(peers.rank)) : peers.at(p, staged(peers.rank));
      };
      sum_to<T, kAtOnce>(
          group, peers.size, share, 1, [&](int) { return output + begin; }, size);
      if (!barrier()) break;  // nobody reads here any more
    }
  }
};

}  // namespace heddle
