// ClusterReduce (ClusterFusion, Alg. 1): every block of a cluster ends with the sum or maximum of all blocks' buffers.
//
// In each of log2 N rounds a block pushes its buffer D into a slot of its peer (B in the paper), waits for the peer's, and
// adds. So D may change as soon as it is pushed. Round i uses slot i % kSlots. A block that has read a slot releases it to
// the block that writes it next, in this call or in the next one. Each round of a sender has a barrier of its own for
// that: releases come from another block in each round, in any order, and one that came early must not count for another.
//
// Only lanes that push wait for a slot. The peer needs nothing of the others to finish a call and to release the slot
// again, so a lane that waits without pushing could miss a release and wait for the one after it.
//
// With Peers::pairs all blocks end with the same bits; with Peers::offset, the paper's order, they may differ in the
// low-order bits. 16-bit numbers are added in float32 and rounded in each round.
#pragma once

#include "device/cluster/cluster_team.h"
#include "device/cluster/combine.h"
#include "device/kernel_waits.h"
#include "schedule/tree.h"

namespace heddle {

// What a block keeps in shared memory beside the slots. Once, by one thread of each block: init(); then
// publish_barriers() and a barrier of the cluster, before any block calls ClusterReducer.
template <class Barrier>
struct ReduceBarriers {
  template <class Team>
  HEDDLE_HOST_DEVICE void init(const Team& team) {
    for (Barrier& barrier : arrived) barrier.init(1);
    for (Barrier& barrier : released) barrier.init(team.arrivals());
  }
  Barrier arrived[kMaxClusterRounds];   // the peer's buffer of a round
  Barrier released[kMaxClusterRounds];  // the peer's slot, for what this block sends in a round
};

// One thread's part; each thread of each block has one for as long as the barriers live. Blocks call reduce() in the same
// order with the same arguments; a block may not end before all blocks of its cluster have returned from the last call.
template <class Team, class Barrier, int kSlots = 2>
requires ClusterTeam<Team, Barrier>
class ClusterReducer {
 public:
  // slots: [kSlots][slot_vectors] in shared memory.
  HEDDLE_HOST_DEVICE ClusterReducer(const Team& team, schedule::Peers peers, ReduceBarriers<Barrier>& barriers,
                                    Vector16* slots, int slot_vectors, const KernelWaits& waits)
      : team_(team),
        schedule_{team.blocks(), peers},
        barriers_(barriers),
        slots_(slots),
        slot_vectors_(slot_vectors),
        waits_(waits) {}

  // data [count] of this block becomes the combination of all blocks'. 1 <= count <= slot_vectors. A lane reads and writes
  // elements lane, lane + lanes, ... alone: whoever reads others' calls team.sync(). After a wait that gave up the data
  // are undefined.
  template <class T, ReduceOp kOp>
  HEDDLE_HOST_DEVICE void reduce(Vector16* data, int count) {
    const int rank = team_.block(), rounds = schedule_.steps();
    for (int round = 0; round < rounds; ++round) {
      const schedule::Transfer transfer = schedule_.at(rank, round);
      Vector16* const slot = slots_ + round % kSlots * slot_vectors_;
      if (team_.lane() < count) await_slot(round);
      for (int i = team_.lane(); i < count; i += team_.lanes())
        team_.push(transfer.to, slot + i, data[i], barriers_.arrived[round]);
      if (team_.lane() == 0)
        barriers_.arrived[round].arrive_expecting(static_cast<std::uint32_t>(count) * kVectorBytes);
      barriers_.arrived[round].wait(waits_, static_cast<int>(calls_ % 2));
      for (int i = team_.lane(); i < count; i += team_.lanes()) data[i] = combined<T, kOp>(data[i], slot[i]);
      // In this call or the next: the round that uses the slot after this one.
      const int next = round + kSlots < rounds ? round + kSlots : round % kSlots;
      team_.release(schedule_.at(rank, next).from, barriers_.released[next]);
    }
    ++calls_;
  }

 private:
  static constexpr std::uint32_t kVectorBytes = sizeof(Vector16);

  // Until the peer has read what was last in the slot; the first rounds of all find empty slots.
  HEDDLE_HOST_DEVICE void await_slot(int round) {
    const std::uint32_t releases = round < kSlots ? calls_ : calls_ + 1;  // that must have come
    if (releases > 0) barriers_.released[round].wait(waits_, static_cast<int>((releases - 1) % 2));
  }

  const Team& team_;
  schedule::ClusterReduce schedule_;
  ReduceBarriers<Barrier>& barriers_;
  Vector16* slots_;
  int slot_vectors_;
  const KernelWaits& waits_;
  std::uint32_t calls_ = 0;
};

}  // namespace heddle
