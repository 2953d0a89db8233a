// A channel: tiles that ranks push into each other's slots, without a barrier. "Eliminating Multi-GPU Performance
// Taxes" raises a flag per tile (Alg. 2 to 4) and says nothing of the next call. Here each slot also counts its rounds
// and hands its buffer back, so calls may follow each other at any pace, and a captured graph may be replayed: all
// counts lie in device memory, and no value is in a kernel's parameters.
//
// A slot belongs to a sender, a receiver and an index, and has one buffer (the caller's, in symmetric memory). Its life
// in a round:
//
//   sender                                              receiver
//   claim            waits until the buffer is free
//   put ...          writes it
//   fill             release                          -> await_full   acquire
//                                                        ...          reads the buffer
//   claim (next)   <- the last consumer's credit         give_back    each consumer once; release of its reads
//
// Several groups of a rank may fill a slot together: await_credit, put, fill_part in place of claim, put, fill. The last one
// takes the credit and fills the slot. They must meet between rounds, as at a kernel's end.
//
// A sender is a group, as above, or a stream (copy engines), which says the same by the fabric:
//   fabric.wait_next(stream, receiver, channel.credit(receiver, i), tag);
//   fabric.put(stream, receiver, buffer, ...);
//   fabric.signal_next(stream, receiver, &channel.slot(rank, i)->full);
//
// This is the data; channel_calls.h has the calls. A rank may send to itself. Every wait has the deadline of
// `peers.waits`; where one answers false, the caller returns at once, its output is undefined, and the channel must not be
// used any more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "device/semaphore.h"

namespace heddle {

// At the receiver. Zeroed before first use.
struct ChannelSlot {
  Semaphore full;          // arrived: rounds that were filled; taken: rounds that all consumers have given back
  std::uint64_t consumed;  // consumers that have given the slot back in this round
};

// At the sender.
struct ChannelCredit {
  Semaphore free;      // the receiver's; one is there before first use
  std::uint64_t sent;  // parts that have been put in this round
};

// What one rank holds of a channel. Trivially copyable: kernels take it as a parameter.
struct Channel {
  ChannelSlot* slots = nullptr;      // [ranks][slots_per_peer], by sender; symmetric
  ChannelCredit* credits = nullptr;  // [ranks][slots_per_peer], by receiver; symmetric
  int slots_per_peer = 0;

  HEDDLE_HOST_DEVICE ChannelSlot* slot(int sender, int index) const { return slots + place(sender, index); }
  HEDDLE_HOST_DEVICE Semaphore* credit(int receiver, int index) const { return &credits[place(receiver, index)].free; }
  HEDDLE_HOST_DEVICE std::uint64_t* sent(int receiver, int index) const {
    return &credits[place(receiver, index)].sent;
  }

  static constexpr std::size_t bytes(int ranks, int slots_per_peer) {
    return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(slots_per_peer) *
           (sizeof(ChannelSlot) + sizeof(ChannelCredit));
  }

  // Cuts `memory` of bytes(ranks, slots_per_peer), symmetric and aligned to 8 bytes, into slots and credits.
  static Channel in(std::byte* memory, int ranks, int slots_per_peer) {
    auto* const slots = reinterpret_cast<ChannelSlot*>(memory);
    return {.slots = slots,
            .credits = reinterpret_cast<ChannelCredit*>(slots + ranks * slots_per_peer),
            .slots_per_peer = slots_per_peer};
  }

 private:
  HEDDLE_HOST_DEVICE std::size_t place(int peer, int index) const {
    return static_cast<std::size_t>(peer) * static_cast<std::size_t>(slots_per_peer) + static_cast<std::size_t>(index);
  }
};

}  // namespace heddle
