// Low-latency exchange (the Lamport protocol of TensorRT-LLM's fused all-reduce; the empty word is ours, see
// packet.cuh): a rank pushes packets into its peers' inboxes and polls its own until the data have arrived. There is no
// flag, no fence and no barrier, so an exchange takes one trip.
//
// An inbox has three buffers. Epoch e uses buffer e % 3 and clears the buffer of epoch e - 1, which epoch e + 2 uses.
// Three suffice: in every epoch each rank sends at least one packet to each other rank, and ends the epoch when it has
// received from all. Let rank p write into rank r's buffer for epoch e + 3. Then p has ended epoch e + 2, so it has
// received what r sent in it. Before that, r had ended epoch e + 1, in which it cleared this buffer, and epoch e, in
// which it read it. Two do not suffice: r clears after it has sent, so p may already write for epoch e + 2 what r then
// clears. tests/collectives/epoch_model_test.cpp tries every order of events, for three buffers and for two.
//
// Packets are relaxed. What orders the epochs of one rank is the end of a kernel: its loads and stores are performed
// before those of the next kernel. On the CPU the end of a task is a fence (kernel_end.h).
//
// What a lane does when a packet is late, or holds an escaped word, is a function apart: a call of little data takes about as
// long as it takes to fetch code that lies between its instructions.
//
// A caller's memory on one rank (InboxMemory) has
//   inbox, buffer_bytes   kInboxBuffers buffers of so many bytes, a multiple of 16, in the symmetric heap
//   blocks                [kMostBlocks] counters `epoch` and `used_bytes`, which only this rank's kernels access
//   codes                 for ByteSlots: an escape code for each packet of the inbox, 0 between calls; symmetric
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/apart.h"
#include "device/one_sided.h"
#include "device/packet.cuh"
#include "device/unrolled.cuh"
#include "schedule/all_to_all.h"

namespace heddle {

inline constexpr int kInboxBuffers = 3;

// The first packet of this lane and the stride to its next one: packets are distributed round-robin over the lanes of
// all blocks of a rank.
template <Group G>
HEDDLE_HOST_DEVICE std::size_t first_packet(const G& group) {
  return static_cast<std::size_t>(group.block() * group.lanes() + group.lane());
}
template <Group G>
HEDDLE_HOST_DEVICE std::size_t packet_stride(const G& group) {
  return static_cast<std::size_t>(group.blocks() * group.lanes());
}

// The order in which a rank sends: each rank begins with a different peer.
using schedule::AllToAll;

// The counters that a call starts from.
struct Epoch {
  std::uint64_t number;
  std::size_t stale_packets;  // used in epoch number - 1, to be cleared
};

template <Group G, class InboxMemory>
HEDDLE_HOST_DEVICE Epoch begin_epoch(const G& group, const InboxMemory& memory) {
  const auto& state = memory.blocks[group.block()];
  return {state.epoch, packets_of(state.used_bytes)};
}

template <class InboxMemory>
HEDDLE_HOST_DEVICE Packet* inbox_of_epoch(const InboxMemory& memory, std::uint64_t epoch) {
  return reinterpret_cast<Packet*>(memory.inbox + epoch % kInboxBuffers * memory.buffer_bytes);
}

// Packets of the inboxes for floats that are summed. The payload of a NaN may change (packet.cuh).
struct FloatSlots {
  Packet* first;

  HEDDLE_HOST_DEVICE FloatSlots operator+(std::size_t packets) const { return {first + packets}; }

  template <PeerAddressing P>
  HEDDLE_HOST_DEVICE void push(const P& peers, int to, const Packet& packet) const {
    send(peers.at(to, first), packet);
  }
  template <int kAtOnce, PeerAddressing P>
  [[nodiscard]] HEDDLE_HOST_DEVICE bool unescape(const P&, Tag, int, std::size_t, Packet (&)[kAtOnce]) const {
    return true;
  }
};

// Waits for the code beside a packet whose first word is `word`, and sets it back to 0. Returns 0 when the wait has given up.
HEDDLE_HOST_DEVICE_APART std::uint8_t take_escape_code(WaitLimit limit, WaitReason reason, std::uint8_t* place,
                                                       const std::uint64_t* word) {
  std::uint8_t code = 0;
  const auto has_come = [&](std::uint64_t) { return (code = atomic_load<Order::relaxed>(place)) != 0; };
  if (!spin_until(limit, reason, word, 0, has_come)) return 0;
  atomic_store<Order::relaxed>(place, 0);
  return code;
}

// Packets of the inboxes for bytes that arrive unchanged.
struct ByteSlots {
  Packet* first;
  std::uint8_t* codes;  // of the packets from the first on

  HEDDLE_HOST_DEVICE ByteSlots operator+(std::size_t packets) const { return {first + packets, codes + packets}; }

  template <PeerAddressing P>
  HEDDLE_HOST_DEVICE void push(const P& peers, int to, const Packet& packet) const {
    send(peers.at(to, first), packet);
    if (has_escape(packet)) atomic_store<Order::relaxed>(peers.at(to, codes), escape_code(packet));
  }

  // Restores the data of packets that have arrived from ranks `from`, `from` + 1, ...; their places lie `stride`
  // packets apart, rank 0's first. False when a wait has given up.
  template <int kAtOnce, PeerAddressing P>
  [[nodiscard]] HEDDLE_HOST_DEVICE bool unescape(const P& peers, Tag tag, int from, std::size_t stride,
                                                 Packet (&packets)[kAtOnce]) const {
    static_assert(kAtOnce <= 8, "a code of each fits into one word");
    unsigned escaped = 0;
    unrolled<kAtOnce>([&](auto k) { escaped |= has_escape(packets[k]) ? 1u << k : 0u; });
    if (escaped == 0) return true;
    std::uint64_t all = 0;  // codes in one word: an index that is not a constant would move the packets to memory
    for (int k = 0; k < kAtOnce; ++k) {
      if ((escaped >> k & 1) == 0) continue;
      const std::size_t at = static_cast<std::size_t>(from + k) * stride;
      const std::uint8_t code =
          take_escape_code(peers.waits, why(peers, from + k, tag), codes + at, &first[at].words[0]);
      if (code == 0) return false;
      all |= std::uint64_t{code} << (8 * k);
    }
    unrolled<kAtOnce>([&](auto k) { packets[k] = unescaped(packets[k], static_cast<unsigned>(all >> (8 * k))); });
    return true;
  }
};

template <class InboxMemory>
HEDDLE_HOST_DEVICE FloatSlots float_slots(const InboxMemory& memory, const Epoch& epoch) {
  return FloatSlots{inbox_of_epoch(memory, epoch.number)};
}
template <class InboxMemory>
HEDDLE_HOST_DEVICE ByteSlots byte_slots(const InboxMemory& memory, const Epoch& epoch) {
  return {inbox_of_epoch(memory, epoch.number),
          memory.codes + epoch.number % kInboxBuffers * packets_of(memory.buffer_bytes)};
}

// Clears what the last epoch used and advances the counters; this call uses `used_packets` of its buffer. Every lane
// calls it once per epoch, best while packets are in flight.
template <Group G, class InboxMemory>
HEDDLE_HOST_DEVICE void clear_and_count(const G& group, const InboxMemory& memory, const Epoch& epoch,
                                        std::size_t used_packets) {
  Packet* const stale = inbox_of_epoch(memory, epoch.number + 2);
  for (std::size_t i = first_packet(group); i < epoch.stale_packets; i += packet_stride(group)) clear(stale + i);
  group.sync();  // every lane has read the counters
  const auto count = [&](int block) {
    memory.blocks[block].epoch = epoch.number + 1;
    memory.blocks[block].used_bytes = used_packets * kPacketBytes;
  };
  if (group.lane() == 0) count(group.block());
  // The next call may have more blocks than this one.
  if (group.block() == 0)
    for (int block = group.blocks() + group.lane(); block < InboxMemory::kMostBlocks; block += group.lanes())
      count(block);
}

// Pushes packet(i), i < packets, to slot `rank` of every other rank's inbox. Several loads are in flight together to
// hide their latency.
template <Group G, PeerAddressing P, class Slots, class Source>
HEDDLE_HOST_DEVICE void push_to_all(const G& group, const P& peers, const Slots& slots, std::size_t packets,
                                    const Source& packet) {
  constexpr int kInFlight = 4;
  const Slots slot = slots + static_cast<std::size_t>(peers.rank) * packets;
  const std::size_t stride = packet_stride(group);
  for (std::size_t first = first_packet(group); first < packets; first += kInFlight * stride) {
    Packet mine[kInFlight];
    unrolled<kInFlight>([&](auto k) {
      if (first + k * stride < packets) mine[k] = packet(first + k * stride);
    });
    unrolled<kInFlight>([&](auto k) {
      const std::size_t i = first + k * stride;
      if (i >= packets) return;
      for (int step = 1; step < peers.size; ++step)
        (slot + i).push(peers, AllToAll{peers.size}.at(peers.rank, step).to, mine[k]);
    });
  }
}

// Pushes packet(peer, i), i < packets(peer), to slot `rank` of each other rank's inbox; slots are `stride` packets
// apart. Packets for kAtOnce ranks are loaded together.
template <int kAtOnce, Group G, PeerAddressing P, class Slots, class Count, class Source>
HEDDLE_HOST_DEVICE void push_to_each(const G& group, const P& peers, const Slots& slots, std::size_t stride,
                                     const Count& packets, const Source& packet) {
  const Slots slot = slots + static_cast<std::size_t>(peers.rank) * stride;
  for (std::size_t i = first_packet(group); i < stride; i += packet_stride(group))
    for (int first = 1; first < peers.size; first += kAtOnce) {
      Packet mine[kAtOnce];
      const auto peer = [&](int k) { return AllToAll{peers.size}.at(peers.rank, first + k).to; };
      const auto sends = [&](int k) { return first + k < peers.size && i < packets(peer(k)); };
      unrolled<kAtOnce>([&](auto k) {
        if (sends(k)) mine[k] = packet(peer(k), i);
      });
      unrolled<kAtOnce>([&](auto k) {
        if (sends(k)) (slot + i).push(peers, peer(k), mine[k]);
      });
    }
}

// One lane's wait for a packet that did not arrive at once; false when the wait has given up.
HEDDLE_HOST_DEVICE_APART bool wait_for_packet(WaitLimit limit, WaitReason reason, const Packet* place) {
  const auto has_come = [](std::uint64_t observed) { return observed != kEmpty; };
  TracedPeerWait wait(limit, reason);
  wait.begin();
  for (const std::uint64_t& word : place->words)
    if (!spin_until(limit, reason, &word, 0, has_come, Untraced())) return false;
  return true;
}

// How often a lane looks for packets before it waits for one that is late.
template <PeerAddressing P>
HEDDLE_HOST_DEVICE int quick_looks([[maybe_unused]] const P& peers) {
#ifdef __CUDA_ARCH__
  return peers.waits.log == nullptr ? 4096 : 0;
#else
  return 8;
#endif
}

// Waits for one packet of each rank in first .. first + kAtOnce - 1 for which awaited(rank), all in flight at once;
// they lie `stride` packets apart, rank 0's at `places`.
template <int kAtOnce, PeerAddressing P, class Slots, class Awaited>
HEDDLE_HOST_DEVICE bool receive_some(const P& peers, Tag tag, const Slots& places, std::size_t stride, int first,
                                     const Awaited& awaited, Packet (&packets)[kAtOnce]) {
  const int quick = quick_looks(peers);
  const auto place = [&](int k) { return places.first + static_cast<std::size_t>(k) * stride; };
  for (int looks = 0;; ++looks) {
    int late = -1;
    unrolled<kAtOnce>([&](auto k) {
      if (awaited(first + k)) packets[k] = look(place(first + k));
    });
    unrolled<kAtOnce>([&](auto k) {
      if (awaited(first + k) && !arrived(packets[k])) late = first + k;
    });
    if (late < 0) return places.unescape(peers, tag, first, stride, packets);
    if (looks >= quick && !wait_for_packet(peers.waits, why(peers, late, tag), place(late))) return false;
  }
}

// For each of this lane's packets i < `stride` and each rank p in rank order with i < packets(p): take(i, p, packet i
// of slot p), with own(i) where p is the own rank. Slots are `stride` packets apart. False when a wait has given up.
template <int kAtOnce, Group G, PeerAddressing P, class Slots, class Count, class Own, class Take>
[[nodiscard]] HEDDLE_HOST_DEVICE bool receive_in_rank_order(const G& group, const P& peers, Tag tag, const Slots& slots,
                                                            std::size_t stride, const Count& packets, const Own& own,
                                                            const Take& take) {
  for (std::size_t i = first_packet(group); i < stride; i += packet_stride(group))
    for (int first = 0; first < peers.size; first += kAtOnce) {
      const auto awaited = [&](int p) { return p < peers.size && p != peers.rank && i < packets(p); };
      const bool has_own = first <= peers.rank && peers.rank < first + kAtOnce && i < packets(peers.rank);
      Packet some[kAtOnce]{};
      const Packet mine = has_own ? own(i) : Packet{};  // loaded while the others' are in flight
      if (!receive_some(peers, tag, slots + i, stride, first, awaited, some)) return false;
      unrolled<kAtOnce>([&](auto k) {
        const int p = first + k;
        if (p >= peers.size || i >= packets(p)) return;
        if (p == peers.rank) some[k] = mine;  // a copy: selecting by address would move both out of registers
        take(i, p, some[k]);
      });
    }
  return true;
}

}  // namespace heddle
