// The algorithms of all_to_all.
#pragma once

#include "collectives/direct.cuh"

namespace heddle {

// Every rank pushes each piece to its receiver. One trip.
template <int kAtOnce>
struct LowLatencyAllToAll {
  const std::byte* input;  // pieces by receiver
  std::byte* output;       // pieces by sender; may be input
  std::size_t bytes;       // of a piece, > 0

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    const Epoch epoch = begin_epoch(group, memory);
    const ByteSlots slots = byte_slots(memory, epoch);
    const std::size_t packets = packets_of(bytes);
    const auto all = [&](int) { return packets; };
    const auto piece = [&](int peer, std::size_t i) {
      return load_packet(input + static_cast<std::size_t>(peer) * bytes, i, bytes);
    };
    const auto keep = [&](std::size_t i, int p, const Packet& packet) {
      store_packet(output + static_cast<std::size_t>(p) * bytes, i, bytes, packet);
    };

    push_to_each<kAtOnce>(group, peers, slots, packets, all, piece);
    clear_and_count(group, memory, epoch, static_cast<std::size_t>(peers.size) * packets);
    static_cast<void>(receive_in_rank_order<kAtOnce>(
        group, peers, "all-to-all", slots, packets, all, [&](std::size_t i) { return piece(peers.rank, i); }, keep));
  }
};

// Every rank stores each piece at its receiver.
struct DirectAllToAll {
  const std::byte* input;
  std::byte* output;  // may be input, unless symmetric
  std::size_t bytes;  // of a piece
  bool symmetric;     // output lies in symmetric memory

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    auto barrier = barrier_of(group, peers, memory, "all-to-all");
    const std::size_t slot = memory.piece_bytes, round = symmetric ? bytes : slot;
    const auto rank = static_cast<std::size_t>(peers.rank);
    for (std::size_t begin = 0; begin < bytes; begin += round) {
      const std::size_t size = bytes - begin < round ? bytes - begin : round;
      std::byte* const there = symmetric ? output + rank * bytes + begin : memory.staging + rank * slot;
      if (!barrier()) break;  // all ranks may now be written
      for (int step = 1; step < peers.size; ++step) {
        const int peer = AllToAll{peers.size}.at(peers.rank, step).to;
        copy_here(group, peers.at(peer, there), input + static_cast<std::size_t>(peer) * bytes + begin, size);
      }
      if (output != input) copy_here(group, output + rank * bytes + begin, input + rank * bytes + begin, size);
      if (!barrier()) break;
      if (symmetric) continue;
      for (int p = 0; p < peers.size; ++p)
        if (p != peers.rank)
          copy_here(group, output + static_cast<std::size_t>(p) * bytes + begin,
                    memory.staging + static_cast<std::size_t>(p) * slot, size);
    }
  }
};

}  // namespace heddle
