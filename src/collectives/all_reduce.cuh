// The algorithms of all_reduce, for a CPU thread and for the blocks of a kernel alike. All sum in float32 in rank order
// and round once, so they give the same bits.
#pragma once

#include "collectives/direct.cuh"

namespace heddle {

// One-shot: every rank pushes its input to all others and sums. Each rank sends (N-1) S bytes; one trip.
template <class T, int kAtOnce>
struct OneShotAllReduce {
  const std::byte* input;
  std::byte* output;  // may be input
  std::size_t bytes;  // > 0

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    const Epoch epoch = begin_epoch(group, memory);
    const FloatSlots slots = float_slots(memory, epoch);
    const std::size_t packets = packets_of(bytes);
    const auto own = [&](std::size_t i) { return load_packet(input, i, bytes); };

    push_to_all(group, peers, slots, packets, own);
    clear_and_count(group, memory, epoch, static_cast<std::size_t>(peers.size) * packets);
    PacketSum<T> sum;
    const auto add = [&](std::size_t i, int p, const Packet& packet) {
      if (p == 0)
        sum.start(packet);
      else
        sum.add(packet);
      if (p == peers.size - 1) store_packet(output, i, bytes, sum.rounded());
    };
    static_cast<void>(receive_in_rank_order<kAtOnce>(
        group, peers, "all-reduce", slots, packets, [&](int) { return packets; }, own, add));
  }
};

// Two-shot: each rank owns a piece, receives all shares of it, sums, and pushes the sum to all. Each rank sends
// 2 (N-1)/N S bytes; two trips. A piece has at least one packet, so that every rank hears from every other
// (low_latency.cuh).
template <class T, int kAtOnce>
struct TwoPhaseAllReduce {
  const std::byte* input;
  std::byte* output;  // may be input
  EvenPieces pieces;  // of more than 16 (N - 1) bytes

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    const Epoch epoch = begin_epoch(group, memory);
    const std::size_t bytes = pieces.bytes, stride = pieces.most_packets();
    const FloatSlots shares = float_slots(memory, epoch);
    const FloatSlots sums = shares + static_cast<std::size_t>(peers.size) * stride;
    const FloatSlots my_sums = sums + static_cast<std::size_t>(peers.rank) * stride;
    const std::size_t mine = pieces.first_packet_of(peers.rank), my_packets = pieces.packets(peers.rank);
    const auto packets = [&](int p) { return pieces.packets(p); };

    push_to_each<kAtOnce>(group, peers, shares, stride, packets, [&](int peer, std::size_t i) {
      return load_packet(input, pieces.first_packet_of(peer) + i, bytes);
    });
    clear_and_count(group, memory, epoch, 2 * static_cast<std::size_t>(peers.size) * stride);
    PacketSum<T> sum;
    const auto add_and_pass_on = [&](std::size_t i, int p, const Packet& packet) {
      if (p == 0)
        sum.start(packet);
      else
        sum.add(packet);
      if (p != peers.size - 1) return;
      const Packet rounded = sum.rounded();
      for (int step = 1; step < peers.size; ++step)
        (my_sums + i).push(peers, AllToAll{peers.size}.at(peers.rank, step).to, rounded);
      store_packet(output, mine + i, bytes, rounded);
    };
    bool come = receive_in_rank_order<kAtOnce>(
        group, peers, "all-reduce 1", shares, stride, [&](int) { return my_packets; },
        [&](std::size_t i) { return load_packet(input, mine + i, bytes); }, add_and_pass_on);
    const auto keep = [&](std::size_t i, int p, const Packet& packet) {
      if (p != peers.rank) store_packet(output, pieces.first_packet_of(p) + i, bytes, packet);
    };
    come = come && receive_in_rank_order<kAtOnce>(
                       group, peers, "all-reduce 2", sums, stride, packets, [](std::size_t) { return Packet{}; }, keep);
  }
};

// Each rank owns a piece, loads all ranks' shares of it, and stores the sum at all ranks: 2 (N-1)/N S bytes per rank.
// Symmetric input and output need no copy; other memory is staged in rounds. There a piece has the same place in every
// round, however short the last one is, so a byte of the staging memory is one block's: another block may still copy out
// what it has of a round when this one begins the next.
template <class T, int kAtOnce>
struct DirectAllReduce {
  const std::byte* input;
  std::byte* output;  // may be input
  std::size_t bytes;
  bool symmetric;  // input and output both lie in symmetric memory, aligned to 16 bytes

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    auto barrier = barrier_of(group, peers, memory, "all-reduce");
    const std::size_t round = symmetric ? bytes : memory.staging_bytes;
    for (std::size_t begin = 0; begin < bytes; begin += round)
      if (!one_round(group, peers, memory, barrier, begin, bytes - begin < round ? bytes - begin : round)) break;
  }

  // Bytes [begin, begin + size) of the whole.
  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE bool one_round(const G& group, const P& peers, const CollectiveMemory& memory,
                                    BlockBarrier<G, P>& barrier, std::size_t begin, std::size_t size) const {
    const EvenPieces pieces{size, peers.size};
    const EvenPieces places{symmetric ? size : memory.staging_bytes, peers.size};
    const std::size_t mine = pieces.begin(peers.rank);
    const auto staged = [&](int p) { return memory.staging + places.begin(p); };
    const std::byte* const shares = symmetric ? input + begin + mine : staged(peers.rank);
    std::byte* const sums = symmetric ? output + begin + mine : staged(peers.rank);

    if (!symmetric)
      for (int p = 0; p < peers.size; ++p)
        if (p != peers.rank) copy_here(group, staged(p), input + begin + pieces.begin(p), pieces.size(p));
    if (!barrier()) return false;
    const auto share = [&](int p) { return p == peers.rank ? input + begin + mine : peers.at(p, shares); };
    const auto sum = [&](int step) {  // this rank's own output last
      return step == peers.size - 1 ? output + begin + mine
                                    : peers.at(AllToAll{peers.size}.at(peers.rank, step + 1).to, sums);
    };
    sum_to<T, kAtOnce>(group, peers.size, share, peers.size, sum, pieces.size(peers.rank));
    if (!barrier()) return false;
    if (!symmetric)
      for (int p = 0; p < peers.size; ++p)
        if (p != peers.rank) copy_here(group, output + begin + pieces.begin(p), staged(p), pieces.size(p));
    return true;
  }
};

}  // namespace heddle
