// The low-latency way between ranks: push the data into the others' inboxes, and poll one's own until the data are
// there. No flag, no fence and no barrier: one trip over the wire. (Lamport's channel, as TensorRT-LLM's fused
// all-reduce uses it; the empty word is ours, see packet.cuh.)
//
// An inbox has three buffers; epoch e uses buffer e % 3, and clears what epoch e - 1 used, which is the buffer of e
// + 2. Why three are enough, whoever runs ahead: in every epoch each rank sends at least one word to each other, and
// ends the epoch when it has received from all. Let rank p write for epoch e + 3 into rank r's buffer. Then p has ended
// epoch e + 2, so it has seen what r sent in epoch e + 2; before it sent that, r had ended epoch e + 1, in which it
// cleared this buffer, and epoch e, in which it read it. Two would not do: r clears after it has sent, so p, which has
// all it needs of epoch e + 1, may write for e + 2 what r then clears. tests/collectives/epoch_model_test.cpp tries
// every order of events, for three buffers and for two.
//
// "Before" between the epochs of one rank is the end of a kernel: its stores are performed before the next kernel's,
// and its loads. Packets themselves are relaxed, so that is what the argument rests on; on the CPU the end of a task
// is a fence for it (run_on_cpu.h).
#pragma once

#include "collectives/collective_memory.h"
#include "device/one_sided.h"
#include "device/packet.cuh"
#include "device/unrolled.cuh"
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

// The order in which a rank sends: each begins with another one.
using schedule::AllToAll;

// What a call finds of the calls before it.
struct Epoch {
  std::uint64_t number;
  std::size_t stale_packets;  // to be cleared: what epoch number - 1 used
};

template <Group G>
HEDDLE_HOST_DEVICE Epoch begin_epoch(const G& group, const CollectiveMemory& memory) {
  const BlockState& state = memory.blocks[group.block()];
  return {state.epoch, packets_of(state.used_bytes)};
}

HEDDLE_HOST_DEVICE Packet* inbox_of_epoch(const CollectiveMemory& memory, std::uint64_t epoch) {
  return reinterpret_cast<Packet*>(memory.inbox + epoch % kInboxBuffers * memory.buffer_bytes);
}

// A place in the inboxes for floats that are summed: which NaN arrives is not said (packet.cuh).
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

// A place for bytes that arrive as they are.
struct ByteSlots {
  Packet* first;
  std::uint8_t* codes;  // of the packets from the first on

  HEDDLE_HOST_DEVICE ByteSlots operator+(std::size_t packets) const { return {first + packets, codes + packets}; }

  template <PeerAddressing P>
  HEDDLE_HOST_DEVICE void push(const P& peers, int to, const Packet& packet) const {
    send(peers.at(to, first), packet);
    if (has_escape(packet)) atomic_store<Order::relaxed>(peers.at(to, codes), escape_code(packet));
  }

  // Makes data of packets that have arrived from the ranks `from`, `from` + 1, ...; their places lie `stride` packets
  // apart, rank 0's first. False when a wait has given up.
  template <int kAtOnce, PeerAddressing P>
  [[nodiscard]] HEDDLE_HOST_DEVICE bool unescape(const P& peers, Tag tag, int from, std::size_t stride,
                                                 Packet (&packets)[kAtOnce]) const {
    static_assert(kAtOnce <= 8, "a code of each fits into one word");
    unsigned escaped = 0;
    unrolled<kAtOnce>([&](auto k) { escaped |= has_escape(packets[k]) ? 1u << k : 0u; });
    if (escaped == 0) return true;
    std::uint64_t all = 0;  // codes, so that no packet is chosen by a variable
    for (int k = 0; k < kAtOnce; ++k) {
      if ((escaped >> k & 1) == 0) continue;
      const std::size_t at = static_cast<std::size_t>(from + k) * stride;
      std::uint8_t code = 0;
      const auto has_come = [&](std::uint64_t) { return (code = atomic_load<Order::relaxed>(codes + at)) != 0; };
      if (!spin_until(peers.waits, why(peers, from + k, tag), &first[at].words[0], 0, has_come)) return false;
      atomic_store<Order::relaxed>(codes + at, 0);
      all |= std::uint64_t{code} << (8 * k);
    }
    unrolled<kAtOnce>([&](auto k) { packets[k] = unescaped(packets[k], static_cast<unsigned>(all >> (8 * k))); });
    return true;
  }
};

HEDDLE_HOST_DEVICE FloatSlots float_slots(const CollectiveMemory& memory, const Epoch& epoch) {
  return {inbox_of_epoch(memory, epoch.number)};
}
HEDDLE_HOST_DEVICE ByteSlots byte_slots(const CollectiveMemory& memory, const Epoch& epoch) {
  return {inbox_of_epoch(memory, epoch.number),
          memory.codes + epoch.number % kInboxBuffers * packets_of(memory.buffer_bytes)};
}

// Clears what the last epoch used, and moves the counters on: this call uses `used_packets` of its buffer. Every lane
// calls it once in every epoch, best while packets are on their way.
template <Group G>
HEDDLE_HOST_DEVICE void clear_and_count(const G& group, const CollectiveMemory& memory, const Epoch& epoch,
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
    for (int block = group.blocks() + group.lane(); block < kMaxBlocks; block += group.lanes()) count(block);
}

// Pushes packet(i), i < packets, to slot `rank` of every other rank's inbox. Loads are under way together: what a load
// takes is paid once for all of them.
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
template <int kAtOnce, PeerAddressing P, class Slots, class Awaited>
HEDDLE_HOST_DEVICE bool receive_some(const P& peers, Tag tag, const Slots& places, std::size_t stride, int first,
                                     const Awaited& awaited, Packet (&packets)[kAtOnce]) {
#ifdef __CUDA_ARCH__
  constexpr int kQuickLooks = 4096;
#else
  constexpr int kQuickLooks = 8;
#endif
  const auto place = [&](int k) { return places.first + static_cast<std::size_t>(first + k) * stride; };
  for (int looks = 0;; ++looks) {
    bool all = true;
    unrolled<kAtOnce>([&](auto k) {
      if (awaited(first + k)) packets[k] = look(place(k));
    });
    unrolled<kAtOnce>([&](auto k) { all = all && (!awaited(first + k) || arrived(packets[k])); });
    if (all) return places.unescape(peers, tag, first, stride, packets);
    if (looks < kQuickLooks) continue;
    for (int k = 0; k < kAtOnce; ++k)
      if (awaited(first + k) && !wait_for_packet(peers, first + k, tag, place(k))) return false;
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
      const Packet mine = has_own ? own(i) : Packet{};  // loaded while the others' are on their way
      if (!receive_some(peers, tag, slots + i, stride, first, awaited, some)) return false;
      unrolled<kAtOnce>([&](auto k) {
        const int p = first + k;
        if (p >= peers.size || i >= packets(p)) return;
        if (p == peers.rank) some[k] = mine;  // copied: chosen by address, both would leave the registers
        take(i, p, some[k]);
      });
    }
  return true;
}

}  // namespace heddle
