// What one rank does in one layer of a strategy, as plain data: the source of its execution (sequence_attention.h), of
// the volume it moves (volume.h) and of its predicted time (timeline.h).
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "fused/piece_attention/piece_attention.h"
#include "parallel/sequence/memory.h"

namespace heddle {

// Three in-order queues: computation, and two of transfers (StreamFusion, appendix A): pulls of Ring Attention on one,
// everything else on the other.
enum class SequenceLane : std::uint8_t { compute, ring, other };
inline constexpr int kSequenceLanes = 3;

struct SequencePlace {
  enum class Area : std::uint8_t { symmetric, own };
  Area area = Area::symmetric;
  std::int64_t offset = 0;
};

// Copies between this rank and `peer`, a rank of the team.
struct SequenceMove {
  enum class Direction : std::uint8_t { push, pull };
  enum class Tensor : std::uint8_t { q, kv, o };
  SequenceLane lane = SequenceLane::other;
  Direction direction = Direction::pull;
  Tensor tensor = Tensor::q;
  int peer = 0;
  SequencePlace here;
  std::int64_t there = 0;  // in the peer's symmetric area
  std::int64_t bytes = 0;
};

// piece_attention() of the queries of some groups with some keys and values.
struct SequenceAttend {
  struct KeysValues {
    SequencePlace place;  // K, with V behind it
    int group = 0, ring_place = 0;
  };
  std::vector<int> queries;  // groups
  std::vector<KeysValues> keys_values;
  PieceStart start = PieceStart::carried;
  PieceEnd end = PieceEnd::carry;
};

// Cuts Q, K and V into head-major pieces; puts the pieces of O together.
struct SequenceSplit {};
struct SequenceJoin {};

// An event of this rank: what a lane has done. It is recorded once a layer, before it is awaited.
struct SequenceRecord {
  SequenceLane lane = SequenceLane::compute;
  int event = 0;
};
struct SequenceAwait {
  SequenceLane lane = SequenceLane::compute;
  int event = 0;
};

// A message to a semaphore of another rank of the team, and the wait for one at an own semaphore.
struct SequenceSignal {
  SequenceLane lane = SequenceLane::other;
  int peer = 0;
  int flag = 0;
};
struct SequenceTake {
  SequenceLane lane = SequenceLane::other;
  int from = 0;
  int flag = 0;
};

struct SequenceBarrier {
  SequenceLane lane = SequenceLane::other;
  std::vector<int> ranks;  // of the team
};

using SequenceOp = std::variant<SequenceSplit, SequenceJoin, SequenceMove, SequenceAttend, SequenceRecord,
                                SequenceAwait, SequenceSignal, SequenceTake, SequenceBarrier>;

// In the order in which they are enqueued; each lane runs its own in that order.
struct SequenceProgram {
  std::vector<SequenceOp> ops;
  int num_events = 0;
};

SequenceLane lane_of(const SequenceOp& op);

// The program of `rank` under a strategy on its mesh. Algorithm 1 of the paper serves all strategies but `torus`: with
// one part it is Ulysses, Ring, USP or TAS, by the mesh alone. docs/notes/sequence_attention.md lists where it departs
// from the paper's listing, which errs.
SequenceProgram make_sequence_program(SequenceStrategy strategy, const SequenceMemory& memory, int rank);

}  // namespace heddle
