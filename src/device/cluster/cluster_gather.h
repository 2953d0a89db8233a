// ClusterGather (ClusterFusion, Alg. 2): every block of a cluster ends with all blocks' segments. By the tree, in log2 N
// rounds whose messages double, or in one step in which each block pushes its segment to all others; either way a block
// sends N - 1 segments.
//
// Two buffers take turns. A block that has returned from a call has heard from all others in it, so all others have begun
// that call and have done with the one before: the next call may write into that one's buffer. No block has to say that
// it has read.
#pragma once

#include "device/cluster/cluster_team.h"
#include "device/cluster/combine.h"
#include "device/kernel_waits.h"
#include "schedule/all_to_all.h"
#include "schedule/tree.h"

namespace heddle {

// What a block keeps in shared memory beside the segments. Once, by one thread of each block: init(); then
// publish_barriers() and a barrier of the cluster, before any block calls ClusterGatherer.
template <class Barrier>
struct GatherBarriers {
  HEDDLE_HOST_DEVICE void init() {
    for (auto& of_turn : arrived)
      for (Barrier& barrier : of_turn) barrier.init(1);
  }
  Barrier arrived[2][kMaxClusterRounds];  // by turn and round
};

// One thread's part; each thread of each block has one for as long as the barriers live. Blocks call it in the same
// order with the same arguments; a block may not end before all blocks of its cluster have returned from the last call.
template <class Team, class Barrier>
requires ClusterTeam<Team, Barrier>
class ClusterGatherer {
 public:
  // segments: [2][blocks][segment_vectors] in shared memory.
  HEDDLE_HOST_DEVICE ClusterGatherer(const Team& team, schedule::Peers peers, GatherBarriers<Barrier>& barriers,
                                     Vector16* segments, int segment_vectors, const KernelWaits& waits)
      : team_(team),
        schedule_{team.blocks(), peers},
        barriers_(barriers),
        segments_(segments),
        segment_vectors_(segment_vectors),
        waits_(waits) {}

  // All blocks' data [count], one behind the other: those of block `owner` are segment segment_of(owner). count <=
  // segment_vectors. `data` is read at once. The result is there until this block's next call, for all its lanes. After a
  // wait that gave up it is undefined.
  HEDDLE_HOST_DEVICE const Vector16* gather(const Vector16* data, int count) {
    Vector16* const here = begin(data, count, schedule_.segment_of(team_.block(), team_.block()));
    for (int step = 0; step < schedule_.steps(); ++step) {
      const schedule::Transfer transfer = schedule_.at(team_.block(), step);
      const int receive = schedule_.at(transfer.to, step).receive, vectors = transfer.count * count;
      Barrier& arrived = barriers_.arrived[turn()][step];
      for (int i = team_.lane(); i < vectors; i += team_.lanes())
        team_.push(transfer.to, here + receive * count + i, here[transfer.send * count + i], arrived);
      await(arrived, vectors);
    }
    end();
    return here;
  }

  // The same in one step: block i's data are segment i.
  HEDDLE_HOST_DEVICE const Vector16* gather_directly(const Vector16* data, int count) {
    const int rank = team_.block();
    Vector16* const here = begin(data, count, rank);
    const schedule::AllToAll peers{team_.blocks()};
    Barrier& arrived = barriers_.arrived[turn()][0];
    for (int step = 1; step < peers.steps(); ++step)
      for (int i = team_.lane(); i < count; i += team_.lanes())
        team_.push(peers.at(rank, step).to, here + rank * count + i, data[i], arrived);
    if (team_.blocks() > 1) await(arrived, (team_.blocks() - 1) * count);
    end();
    return here;
  }

  // gather_directly() by bulk copies, which one lane issues: for long segments.
  HEDDLE_HOST_DEVICE const Vector16* gather_in_bulk(const Vector16* data,
                                                    int count) requires BulkClusterTeam<Team, Barrier> {
    const int rank = team_.block();
    Vector16* const here = segments_ + turn() * team_.blocks() * segment_vectors_;
    for (int i = team_.lane(); i < count; i += team_.lanes()) here[rank * count + i] = data[i];
    team_.fence_for_bulk();
    team_.sync();
    const schedule::AllToAll peers{team_.blocks()};
    Barrier& arrived = barriers_.arrived[turn()][0];
    if (team_.lane() == 0)
      for (int step = 1; step < peers.steps(); ++step)
        team_.push_range(peers.at(rank, step).to, here + rank * count, here + rank * count, count, arrived);
    if (team_.blocks() > 1) await(arrived, (team_.blocks() - 1) * count);
    end();
    return here;
  }

  // Of data [blocks][count], part i goes to block i. The result is what all blocks had for this one, in their order: a block
  // sends as much as by gather_directly(). data are read at once.
  HEDDLE_HOST_DEVICE const Vector16* exchange(const Vector16* data, int count) {
    const int rank = team_.block();
    Vector16* const here = begin(data + rank * count, count, rank);
    const schedule::AllToAll peers{team_.blocks()};
    Barrier& arrived = barriers_.arrived[turn()][0];
    for (int step = 1; step < peers.steps(); ++step) {
      const int to = peers.at(rank, step).to;
      for (int i = team_.lane(); i < count; i += team_.lanes())
        team_.push(to, here + rank * count + i, data[to * count + i], arrived);
    }
    if (team_.blocks() > 1) await(arrived, (team_.blocks() - 1) * count);
    end();
    return here;
  }

  // data [count] of this block becomes the sum or maximum of all blocks', in one step, in the order of the blocks: all
  // have the same bits. 16-bit numbers are added in float32 and rounded once. As ClusterReducer::reduce().
  template <class T, ReduceOp kOp>
  HEDDLE_HOST_DEVICE void reduce_directly(Vector16* data, int count) {
    const Vector16* const all = gather_directly(data, count);
    for (int i = team_.lane(); i < count; i += team_.lanes()) {
      Numbers<T> numbers(all[i]);
      for (int block = 1; block < team_.blocks(); ++block) numbers.template combine<kOp>(all[block * count + i]);
      data[i] = numbers.vector();
    }
  }

  // The same in two steps, for long buffers: each block combines one part of all blocks' buffers, then gathers the parts.
  // A block sends 2 (N - 1) / N buffers. count is a multiple of the blocks; segment_vectors >= count / blocks.
  template <class T, ReduceOp kOp>
  HEDDLE_HOST_DEVICE void reduce_in_two_steps(Vector16* data, int count) {
    const int rank = team_.block(), part = count / team_.blocks();
    const schedule::AllToAll peers{team_.blocks()};
    Vector16* const here = segments_ + turn() * team_.blocks() * segment_vectors_;
    Barrier& arrived = barriers_.arrived[turn()][0];
    team_.sync();  // any lane may send any of it; and all have done with the call before
    for (int step = 1; step < peers.steps(); ++step) {
      const int to = peers.at(rank, step).to;
      for (int i = team_.lane(); i < part; i += team_.lanes())
        team_.push(to, here + rank * part + i, data[to * part + i], arrived);
    }
    if (team_.blocks() > 1) await(arrived, (team_.blocks() - 1) * part);
    for (int i = team_.lane(); i < part; i += team_.lanes()) {
      const auto of = [&](int block) { return block == rank ? data[rank * part + i] : here[block * part + i]; };
      Numbers<T> numbers(of(0));
      for (int block = 1; block < team_.blocks(); ++block) numbers.template combine<kOp>(of(block));
      data[rank * part + i] = numbers.vector();
    }
    end();
    const Vector16* const all = gather_directly(data + rank * part, part);
    for (int i = team_.lane(); i < count; i += team_.lanes()) data[i] = all[i];
  }

  HEDDLE_HOST_DEVICE int segment_of(int owner) const { return schedule_.segment_of(team_.block(), owner); }

 private:
  HEDDLE_HOST_DEVICE int turn() const { return static_cast<int>(calls_ % 2); }

  HEDDLE_HOST_DEVICE Vector16* begin(const Vector16* data, int count, int segment) {
    Vector16* const here = segments_ + turn() * team_.blocks() * segment_vectors_;
    for (int i = team_.lane(); i < count; i += team_.lanes()) here[segment * count + i] = data[i];
    team_.sync();  // all lanes may send all of it; and all have done with the call before
    return here;
  }

  HEDDLE_HOST_DEVICE void await(Barrier& arrived, int vectors) {
    if (team_.lane() == 0)
      arrived.arrive_expecting(static_cast<std::uint32_t>(vectors) * std::uint32_t{sizeof(Vector16)});
    arrived.wait(waits_, static_cast<int>(calls_ / 2 % 2));
  }

  HEDDLE_HOST_DEVICE void end() { ++calls_; }

  const Team& team_;
  schedule::ClusterGather schedule_;
  GatherBarriers<Barrier>& barriers_;
  Vector16* segments_;
  int segment_vectors_;
  const KernelWaits& waits_;
  std::uint32_t calls_ = 0;
};

}  // namespace heddle
