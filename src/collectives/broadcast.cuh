// The algorithms of broadcast.
#pragma once

#include "collectives/direct.cuh"

namespace heddle {

// The root pushes everything to all others. One trip. The others push one packet without data to all others, because
// low_latency.cuh needs a packet from every rank in every epoch.
struct LowLatencyBroadcast {
  const std::byte* input;  // of the root
  std::byte* output;       // may be input
  std::size_t bytes;       // > 0
  int root;

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    const Epoch epoch = begin_epoch(group, memory);
    const std::size_t packets = packets_of(bytes);
    const ByteSlots data = byte_slots(memory, epoch), tokens = data + packets;
    const auto own = [&](std::size_t i) { return load_packet(input, i, bytes); };

    if (peers.rank == root)
      for (std::size_t i = first_packet(group); i < packets; i += packet_stride(group)) {
        const Packet packet = own(i);
        for (int step = 1; step < peers.size; ++step)
          (data + i).push(peers, AllToAll{peers.size}.at(root, step).to, packet);
        if (output != input) store_packet(output, i, bytes, packet);
      }
    push_to_all(group, peers, tokens, 1, [](std::size_t) { return Packet{}; });
    clear_and_count(group, memory, epoch, packets + static_cast<std::size_t>(peers.size));
    bool come = receive_in_rank_order<1>(
        group, peers, "broadcast", tokens, 1, [](int) { return std::size_t{1}; }, [](std::size_t) { return Packet{}; },
        [](std::size_t, int, const Packet&) {});
    if (peers.rank != root)
      for (std::size_t i = first_packet(group); come && i < packets; i += packet_stride(group)) {
        Packet some[1]{};
        come = receive_some(
            peers, "broadcast", data + i, 0, root, [](int) { return true; }, some);
        if (come) store_packet(output, i, bytes, some[0]);
      }
  }
};

// The root stores one piece at each rank, which stores it at all others: the root's link carries everything once, not
// N - 1 times. The root stores piece `root` at all ranks. Pieces that are staged have the same place in every round, as in
// DirectAllReduce.
struct DirectBroadcast {
  const std::byte* input;
  std::byte* output;
  std::size_t bytes;
  int root;
  bool symmetric;  // output lies in symmetric memory

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    auto barrier = barrier_of(group, peers, memory, "broadcast");
    const std::size_t round = symmetric ? bytes : memory.staging_bytes;
    for (std::size_t begin = 0; begin < bytes; begin += round) {
      const EvenPieces pieces{bytes - begin < round ? bytes - begin : round, peers.size};
      const EvenPieces places{symmetric ? pieces.bytes : memory.staging_bytes, peers.size};
      const auto place = [&](int p) { return (symmetric ? output + begin : memory.staging) + places.begin(p); };
      if (!barrier()) break;  // all ranks may now be written
      if (peers.rank == root) scatter(group, peers, place, begin, pieces);
      if (!barrier()) break;
      if (peers.rank != root) pass_on(group, peers, place, pieces);
      if (!barrier()) break;
      if (symmetric || peers.rank == root) continue;
      for (int p = 0; p < peers.size; ++p) copy_here(group, output + begin + pieces.begin(p), place(p), pieces.size(p));
    }
  }

  template <Group G, PeerAddressing P, class Place>
  HEDDLE_HOST_DEVICE void scatter(const G& group, const P& peers, const Place& place, std::size_t begin,
                                  const EvenPieces& pieces) const {
    for (int step = 1; step < peers.size; ++step) {
      const int peer = AllToAll{peers.size}.at(root, step).to;
      for (const int p : {peer, root})
        copy_here(group, peers.at(peer, place(p)), input + begin + pieces.begin(p), pieces.size(p));
    }
    if (output != input) copy_here(group, output + begin, input + begin, pieces.bytes);
  }

  template <Group G, PeerAddressing P, class Place>
  HEDDLE_HOST_DEVICE void pass_on(const G& group, const P& peers, const Place& place, const EvenPieces& pieces) const {
    std::byte* const mine = place(peers.rank);
    for (int step = 1; step < peers.size; ++step) {
      const int peer = AllToAll{peers.size}.at(peers.rank, step).to;
      if (peer != root) copy_here(group, peers.at(peer, mine), mine, pieces.size(peers.rank));
    }
  }
};

}  // namespace heddle
