// One rank's part of attention over a sequence that the ranks of a team share: executes the program of a strategy
// (program.h) over a fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/graph.h"
#include "base/lane.h"
#include "base/stream.h"
#include "base/thread_pool.h"
#include "fabric/fabric.h"
#include "fabric/symmetric_memory.h"
#include "fused/piece_attention/head_groups.h"
#include "parallel/sequence/program.h"
#include "parallel/sequence/timeline.h"

namespace heddle {

// What a layer does of its program.
enum class SequenceWork : std::uint8_t {
  whole,
  computation  // nothing is moved, signalled or waited for, and y holds nothing: how long a layer computes
};

class SequenceAttention {
 public:
  // Bytes of a rank's heap that the constructor allocates.
  static std::size_t heap_bytes(const SequenceMemory& memory);

  // Collective over the world of `fabric`, which must outlive it: every rank is in one team, and every team has a mesh
  // and a shape of the same sizes. `team` gives the world's rank of each rank of the mesh, so two halves of a batch run
  // beside each other on two teams (CFG parallelism). Throws InvalidArgument when they do not fit each other, and on
  // GPUs when piece_attention() has no kernel for the shape; Failure when the heap is full.
  SequenceAttention(Fabric& fabric, std::span<const int> team, SequenceStrategy strategy, const SequenceMesh& mesh,
                    const SequenceShape& shape);
  SequenceAttention(const SequenceAttention&) = delete;
  SequenceAttention& operator=(const SequenceAttention&) = delete;
  ~SequenceAttention();

  // Enqueues one layer and returns. q, k, v and y are this rank's tokens, [batch, tokens, num_heads, head_dim],
  // contiguous, in the shape's dtype; y overlaps none of the others. They are read and written by the stream alone.
  // All ranks of the team call it equally often; all calls are of one stream, on a GPU that ranks share with the SMs of
  // Fabric::device_share. With several ranks what computes leaves one SM to the messages and barriers of the transfers.
  //
  //   y = softmax(q K^T * scale) V, with K and V of all tokens of the team; with PieceMask::causal those up to one's own
  //
  // Each key/value piece is added in an order of its own on each rank. So low-order bits depend on the strategy, the
  // mesh and the rank, and never on time. Between ranks order only the barriers of the team, at the beginning and the end,
  // and what lies between (program.h).
  void attend(const void* q, const void* k, const void* v, void* y, float scale, const Lane& lane);

  // A layer of these operands as a CUDA graph, for any number of launches on the lane's stream: each is one launch instead
  // of one for each operation, and counts as a call of attend(), as do those between them. Collective over the fabric's
  // world, after a first layer by attend(). It waits for this rank's layers, so call synchronize() first to see their
  // errors. Throws InvalidArgument on streams of the CPU. This object outlives the graph.
  Graph capture(const void* q, const void* k, const void* v, void* y, float scale, const Lane& lane);

  // From now on computation is replaced by waits as long as these rates predict, on streams of the CPU: transfers and
  // messages are real, y holds nothing. So the time of a schedule can be measured where computing would disturb it.
  void replace_computation(const SequenceRates& rates);

  // Of layers that are enqueued or captured from now on; at first `whole`. Those of `computation` compute on all SMs of
  // their lane, as there are no transfers to leave one to, and count as no call of attend(). All ranks of the team choose
  // the same, and have synchronized before: nothing may come while a layer computes on what lies there.
  void set_work(SequenceWork work) { work_ = work; }

  // Waits for the layers enqueued on `stream` and their transfers; throws the fabric's error. A layer whose transfer has
  // failed computes with what lies in memory, so nobody may use y before this returned.
  void synchronize(Stream& stream);

  const SequenceMemory& memory() const { return memory_; }
  const SequenceProgram& program() const { return program_; }

 private:
  struct Call;
  // A move as the fabric takes it.
  struct Transfer {
    int peer;  // of the world
    std::byte *here, *there;
    std::size_t bytes;
  };

  std::byte* address(const SequencePlace& place);
  Transfer transfer_of(const SequenceMove& move);
  void make_layouts();
  void begin_moves(std::size_t first, Call& call);
  void run(const SequenceOp& op, const Call& call);

  Fabric& fabric_;
  std::vector<int> team_;
  int rank_;  // in the team
  SequenceStrategy strategy_;
  SequenceMemory memory_;
  SequenceProgram program_;
  SymmetricMemory symmetric_;
  Buffer private_;
  Buffer workspace_;  // of piece_attention()
  Buffer state_;      // O', l and m of all query pieces
  HeadGroups q_pieces_, k_pieces_, v_pieces_, o_pieces_;
  std::vector<PieceLayout> layouts_;  // of the program's SequenceAttend ops, in order
  std::vector<Event> events_;
  std::optional<SequenceRates> waits_;  // in place of computation
  SequenceWork work_ = SequenceWork::whole;
  ThreadPool pool_{1};
  Stream ring_, other_;
  Event layer_begun_, ring_done_, other_done_;  // of a captured layer
};

}  // namespace heddle
