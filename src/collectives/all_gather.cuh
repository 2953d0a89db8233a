// The algorithms of all_gather.
#pragma once

#include "collectives/direct.cuh"

namespace heddle {

// Every rank pushes its piece to all others. One trip.
template <int kAtOnce>
struct LowLatencyAllGather {
  const std::byte* input;  // one piece; may be this rank's piece of output
  std::byte* output;       // one piece per rank
  std::size_t bytes;       // of a piece, > 0

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    const Epoch epoch = begin_epoch(group, memory);
    const ByteSlots slots = byte_slots(memory, epoch);
    const std::size_t packets = packets_of(bytes);
    const auto own = [&](std::size_t i) { return load_packet(input, i, bytes); };
    const auto keep = [&](std::size_t i, int p, const Packet& packet) {
      store_packet(output + static_cast<std::size_t>(p) * bytes, i, bytes, packet);
    };

    push_to_all(group, peers, slots, packets, own);
    clear_and_count(group, memory, epoch, static_cast<std::size_t>(peers.size) * packets);
    static_cast<void>(receive_in_rank_order<kAtOnce>(
        group, peers, "all-gather", slots, packets, [&](int) { return packets; }, own, keep));
  }
};

// Every rank stores its piece at all ranks.
struct DirectAllGather {
  const std::byte* input;
  std::byte* output;
  std::size_t bytes;  // of a piece
  bool symmetric;     // output lies in symmetric memory

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    auto barrier = barrier_of(group, peers, memory, "all-gather");
    const std::size_t slot = memory.piece_bytes, round = symmetric ? bytes : slot;
    const auto rank = static_cast<std::size_t>(peers.rank);
    for (std::size_t begin = 0; begin < bytes; begin += round) {
      const std::size_t size = bytes - begin < round ? bytes - begin : round;
      std::byte* const here = output + rank * bytes + begin;
      std::byte* const there = symmetric ? here : memory.staging + rank * slot;
      if (!barrier()) break;  // all ranks may now be written
      const auto destination = [&](int step) {
        return step == peers.size - 1 ? here : peers.at(AllToAll{peers.size}.at(peers.rank, step + 1).to, there);
      };
      copy_to(group, peers.size, destination, input + begin, size);
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
