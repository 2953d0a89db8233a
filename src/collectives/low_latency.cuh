// The low-latency way between ranks: push the data into the others' inboxes, and poll one's own until the data are
// there. No flag, no fence and no barrier: one trip over the wire. (Lamport's channel, as TensorRT-LLM's fused
// all-reduce uses it; the empty word is ours, see packet.cuh.)
//
// An inbox has three buffers; epoch e uses buffer e % 3, and clears what epoch e - 1 used, which is the buffer of e
// + 2. Why three are enough, whoever runs ahead: in every epoch each rank sends at least one word to each other, and
// ends the epoch when it has received from all. Let rank p write for epoch e + 2 into rank r's buffer. Then p has ended
// epoch e + 1, so it has seen what r sent in epoch e + 1; before it sent that, r had ended epoch e, in which it cleared
// this buffer, and epoch e - 1, in which it read it last. Two would not do: r may still be reading epoch e's when p,
// which has all it needs of epoch e, writes that of e + 1.
//
// "Before" between the epochs of one rank is the order of its stream. On the CPU words are stored with release and
// polled with acquire, so p's words come after r's clearing; on a GPU a kernel's end orders them.
#pragma once

#include "collectives/packet.cuh"
#include "collectives/unrolled.cuh"
#include "collectives/workspace.h"
#include "fabric/one_sided.h"
#include "schedule/all_to_all.h"

namespace heddle {

// Where the packets of this lane begin, and how far they lie apart: the lanes of all blocks of a rank take turns.
template <Group G>
HEDDLE_HOST_DEVICE std::size_t first_packet(const G& group) {
  return static_cast<std::size_t>(group.block() * group.lanes() + group.lane());
}
template <Group G>
HEDDLE_HOST_DEVICE std::size_t packet_stride(const G& group) {
  return static_cast<std::size_t>(group.blocks() * group.lanes());
}

// The rank that is `step` further, 1 <= step < size: each rank begins with another one.
HEDDLE_HOST_DEVICE int peer_at(int rank, int step, int size) {
  return schedule::AllToAll{size}.at(rank, step).to;
}

HEDDLE_HOST_DEVICE Packet* inbox_of_epoch(const Workspace& workspace, std::uint64_t epoch) {
  return reinterpret_cast<Packet*>(workspace.inbox + epoch % 3 * workspace.buffer_bytes);
}

// Clears what the last epoch used; to be done in every epoch, best while packets are on their way.
template <Group G>
HEDDLE_HOST_DEVICE void clear_stale(const G& group, const Workspace& workspace, std::uint64_t epoch) {
  Packet* const stale = inbox_of_epoch(workspace, epoch + 2);
  const std::size_t packets = packets_of(workspace.state->stale_bytes);
  for (std::size_t i = first_packet(group); i < packets; i += packet_stride(group)) clear(stale + i);
}

// Ends a call: the last block of the rank to come here moves the counters on.
template <Group G>
HEDDLE_HOST_DEVICE void finish(const G& group, CollectiveState& state, std::uint64_t epochs, std::uint64_t used_bytes,
                               std::uint64_t barriers) {
  group.sync();
  if (group.lane() != 0) return;
  if (group.blocks() > 1) {
    if (atomic_add<Order::acq_rel, Scope::gpu>(&state.blocks_done, 1) + 1 != static_cast<std::uint32_t>(group.blocks()))
      return;
    state.blocks_done = 0;
  }
  state.epoch += epochs;
  if (epochs != 0) state.stale_bytes = used_bytes;
  state.barriers_passed += barriers;
}

// Pushes packet(i), i < packets, to slot `rank` of every other rank's inbox.
template <Group G, PeerAddressing P, class Source>
HEDDLE_HOST_DEVICE void push_to_all(const G& group, const P& peers, Packet* slots, std::size_t packets,
                                    const Source& packet) {
  Packet* const slot = slots + static_cast<std::size_t>(peers.rank) * packets;
  for (std::size_t i = first_packet(group); i < packets; i += packet_stride(group)) {
    const Packet mine = packet(i);
    for (int step = 1; step < peers.size; ++step) send(peers.at(peer_at(peers.rank, step, peers.size), slot + i), mine);
  }
}

// Pushes packet(peer, i), i < packets(peer), to slot `rank` of each other rank's inbox; slots are `stride` apart.
template <Group G, PeerAddressing P, class Count, class Source>
HEDDLE_HOST_DEVICE void push_to_each(const G& group, const P& peers, Packet* slots, std::size_t stride,
                                     const Count& packets, const Source& packet) {
  Packet* const slot = slots + static_cast<std::size_t>(peers.rank) * stride;
  for (int step = 1; step < peers.size; ++step) {
    const int peer = peer_at(peers.rank, step, peers.size);
    const std::size_t count = packets(peer);
    for (std::size_t i = first_packet(group); i < count; i += packet_stride(group))
      send(peers.at(peer, slot + i), packet(peer, i));
  }
}

// One lane's wait for a packet that did not come at once; false when the wait has given up.
template <PeerAddressing P>
HEDDLE_HOST_DEVICE bool wait_for_packet(const P& peers, int from, Tag tag, const Packet* place) {
  const auto has_come = [](std::uint64_t observed) { return observed != kEmpty; };
  for (const std::uint64_t& word : place->words)
    if (!spin_until(peers.waits, why(peers, from, tag), &word, 0, has_come)) return false;
  return true;
}

// Waits for one packet of each rank first .. first + kAtOnce - 1 that is awaited(rank), all under way at once; they lie
// `stride` packets apart, rank 0's at `places`.
template <int kAtOnce, PeerAddressing P, class Awaited>
HEDDLE_HOST_DEVICE bool receive_some(const P& peers, Tag tag, const Packet* places, std::size_t stride, int first,
                                     const Awaited& awaited, Packet (&packets)[kAtOnce]) {
#ifdef __CUDA_ARCH__
  constexpr int kQuickLooks = 4096;
#else
  constexpr int kQuickLooks = 8;
#endif
  const auto place = [&](int k) { return places + static_cast<std::size_t>(first + k) * stride; };
  for (int looks = 0;; ++looks) {
    bool all = true;
    unrolled<kAtOnce>([&](auto k) {
      if (awaited(first + k)) packets[k] = look(place(k));
    });
    unrolled<kAtOnce>([&](auto k) { all = all && (!awaited(first + k) || arrived(packets[k])); });
    if (all) return true;
    if (looks < kQuickLooks) continue;
    for (int k = 0; k < kAtOnce; ++k)
      if (awaited(first + k) && !wait_for_packet(peers, first + k, tag, place(k))) return false;
  }
}

// For each of this lane's packets i < `stride` and each rank p in rank order with i < packets(p): take(i, p, packet i
// of slot p), with own(i) where p is the own rank. Slots are `stride` packets apart. False when a wait has given up.
template <int kAtOnce, Group G, PeerAddressing P, class Count, class Own, class Take>
[[nodiscard]] HEDDLE_HOST_DEVICE bool receive_in_rank_order(const G& group, const P& peers, Tag tag,
                                                            const Packet* slots, std::size_t stride,
                                                            const Count& packets, const Own& own, const Take& take) {
  for (std::size_t i = first_packet(group); i < stride; i += packet_stride(group))
    for (int first = 0; first < peers.size; first += kAtOnce) {
      const auto awaited = [&](int p) { return p < peers.size && p != peers.rank && i < packets(p); };
      Packet some[kAtOnce]{};
      if (!receive_some(peers, tag, slots + i, stride, first, awaited, some)) return false;
      unrolled<kAtOnce>([&](auto k) {
        const int p = first + k;
        if (p >= peers.size || i >= packets(p)) return;
        if (p == peers.rank) some[k] = own(i);
        take(i, p, some[k]);
      });
    }
  return true;
}

}  // namespace heddle
