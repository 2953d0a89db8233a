// What one block of a cluster does in decode_block.h: the exchanges, and what lies between them. Written once for a
// block of a kernel and for a thread of the CPU; the work between two exchanges is `Work`'s, decode_block_cpu.h or
// decode_block_sm90.cu.
#pragma once

#include <cstdint>

#include "device/cluster/cluster_reduce.h"
#include "fused/cluster_block_body.cuh"
#include "fused/decode_block.h"
#include "fused/tree_merge.cuh"
#include "fused/unit_outputs.cuh"

namespace heddle {

// What a block keeps in shared memory beside DecodeBlockMemory. As ReduceBarriers: init() by one thread, then a barrier
// of the cluster.
template <class Barrier>
struct DecodeBlockBarriers {
  template <class Team>
  HEDDLE_HOST_DEVICE void init(const Team& team) {
    sums.init();
    x.init();
    qkv.init();
    merge.init();
    reduce.init(team);
  }
  GatherBarriers<Barrier> sums, x, qkv, merge;
  ReduceBarriers<Barrier> reduce;
  std::uint32_t arrivals;  // of this block's output rows, before this block
};

// The parts of params.scratch. exchange_of: of DecodeExchange::off_chip, otherwise null.
UnitOutputs scratch_of(const DecodeBlockParams& params);
Vector16* exchange_of(const DecodeBlockParams& params);

template <class T, class Team, class Barrier, class Work>
class DecodeBlockBody
    : ClusterBlockBody<T, Team, Barrier, DecodeBlockShape, DecodeBlockMemory, DecodeBlockBarriers<Barrier>, Work> {
  using Base =
      ClusterBlockBody<T, Team, Barrier, DecodeBlockShape, DecodeBlockMemory, DecodeBlockBarriers<Barrier>, Work>;
  using Base::floats, Base::elements, Base::gather_directly;
  using Base::team_, Base::shape_, Base::unit_, Base::barriers_, Base::memory_, Base::at_, Base::work_, Base::waits_;

 public:
  using Base::Base;

  // All lanes of all blocks of the cluster. A block may end when all blocks of its cluster have returned. `exchanged`:
  // exchange_of().
  HEDDLE_HOST_DEVICE void run(const UnitOutputs& scratch, float* partials, Vector16* exchanged) {
    const DecodeExchangePlaces places(at_, team_.blocks());
    exchanged_ = exchanged == nullptr ? nullptr : exchanged + std::int64_t{unit_} * places.end;
    const int rank = team_.block();
    // sums [blocks that share][tokens]; x [cluster][tokens][slice]
    const bool shares = shape_.mapping.norm == DecodeNorm::shared;
    float* const sums = floats(at_.sums);
    T* const x = elements(at_.x);
    work_.sum_squares(sums + (shares ? rank : 0) * at_.sums_vectors * 4);
    if (shares)
      exchange(barriers_.sums, at_.sums, at_.sums_vectors, places.sums);
    else
      team_.sync();
    work_.normalize(sums, shares ? team_.blocks() : 1, at_.sums_vectors * 4, x);
    if (shares)
      exchange(barriers_.x, at_.x, at_.x_vectors, places.x);
    else
      team_.sync();

    float* const qkv = floats(at_.qkv);
    work_.mark(DecodeBlockPhase::normalize);
    work_.project(x, qkv + rank * at_.qkv_vectors * 4);
    work_.mark(DecodeBlockPhase::project);
    exchange(barriers_.qkv, at_.qkv, at_.qkv_vectors, places.qkv);
    work_.mark(DecodeBlockPhase::gather);

    work_.finish_heads(qkv, floats(at_.heads));
    team_.sync();
    work_.mark(DecodeBlockPhase::heads);
    const bool by_tree = shape_.mapping.merge == DecodeMerge::tree;
    float* const merge = floats(at_.merge);
    work_.attend(floats(at_.heads), merge + (by_tree ? 0 : rank * at_.merge_vectors * 4));
    work_.mark(DecodeBlockPhase::attend);
    T* const attended = elements(at_.attended);
    if (by_tree)
      merge_by_tree(attended);
    else
      merge_directly(merge, attended);
    team_.sync();
    work_.mark(DecodeBlockPhase::merge);
    put_out(scratch, attended, partials);
    work_.mark(DecodeBlockPhase::sum);
  }

 private:
  HEDDLE_HOST_DEVICE int record() const { return shape_.head_dim + DecodeBlockMemory::kMergeWords; }
  HEDDLE_HOST_DEVICE int rows() const { return shape_.tokens * shape_.most_heads(); }

  // Of segments [blocks][count] each block has written its own; afterwards it has all, for its lanes. `place`: of
  // DecodeExchangePlaces.
  HEDDLE_HOST_DEVICE void exchange(GatherBarriers<Barrier>& barriers, int segments, int count, int place) {
    if constexpr (MeetingClusterTeam<Team>)
      if (exchanged_ != nullptr) return exchange_off_chip(memory_ + segments, count, exchanged_ + place);
    gather_directly(barriers, segments, count);
  }

  // A block writes its segment once, and reads all others'.
  HEDDLE_HOST_DEVICE void exchange_off_chip(Vector16* segments, int count, Vector16* through) {
    const int own = team_.block() * count;
    team_.sync();  // all lanes have written the block's own segment
    for (int i = own + team_.lane(); i < own + count; i += team_.lanes()) through[i] = segments[i];
    team_.meet();
    for (int i = team_.lane(); i < team_.blocks() * count; i += team_.lanes())
      if (i < own || i >= own + count) segments[i] = through[i];
    team_.sync();
  }

  // attended [tokens][most_heads * head_dim].
  HEDDLE_HOST_DEVICE void merge_directly(const float* merge, T* attended) {
    exchange(barriers_.merge, at_.merge, at_.merge_vectors, DecodeExchangePlaces(at_, team_.blocks()).merge);
    for (int i = team_.lane(); i < rows() * shape_.head_dim; i += team_.lanes()) {
      const int row = i / shape_.head_dim, d = i % shape_.head_dim;
      const float* const first = merge + row * record();
      float largest = first[shape_.head_dim];
      for (int block = 1; block < team_.blocks(); ++block)
        largest = combined<ReduceOp::max>(largest, first[block * at_.merge_vectors * 4 + shape_.head_dim]);
      float value = 0, sum = 0;
      for (int block = 0; block < team_.blocks(); ++block) {
        const float* const of_block = first + block * at_.merge_vectors * 4;
        const float weight = Work::exp2(of_block[shape_.head_dim] - largest);
        value += of_block[d] * weight;
        sum += of_block[shape_.head_dim + 1] * weight;
      }
      attended[i] = Work::rounded(value / sum);
    }
  }

  HEDDLE_HOST_DEVICE void merge_by_tree(T* attended) {
    const TreeMergeMemory at{.records = memory_ + at_.merge,
                             .record_vectors = at_.merge_vectors,
                             .maxima = memory_ + at_.maxima,
                             .maxima_vectors = at_.maxima_vectors,
                             .rows = rows(),
                             .dim = shape_.head_dim,
                             .record = record()};
    ClusterReducer<Team, Barrier> reducer(team_, schedule::Peers::pairs, barriers_.reduce,
                                          at.records + at.record_vectors, at.record_vectors, waits_);
    heddle::merge_by_tree<T, Work>(team_, reducer, at, attended);
  }

  // The unit's output goes to its partial, or to scratch; the last unit of the partial adds them in order.
  HEDDLE_HOST_DEVICE void put_out(const UnitOutputs& scratch, const T* attended, float* partials) {
    put_unit_output<Work>(team_, shape_, unit_, scratch, partials, barriers_.arrivals, [&](float* to) {
      work_.project_out(attended, to);
      work_.mark(DecodeBlockPhase::project_out);
    });
  }

  Vector16* exchanged_ = nullptr;  // of the unit
};

}  // namespace heddle
