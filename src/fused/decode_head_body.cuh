// What one block of a cluster does in decode_block.h by SplitHead (decode_head_plan.h, Alg. 5): two kinds of exchanges, and
// what lies between them. Written once for a block of a kernel and for a thread of the CPU; the work between two
// exchanges is `Work`'s, decode_head_cpu.h or decode_head_sm90.cu.
//
// As in the paper but for three things. Scores and outputs are reduced a tile at a time, as shared memory would not hold
// all. Ranks exchange by pairs, so all have the same bits (schedule/tree.h). Outputs of units are added in order, without
// atomics.
#pragma once

#include "device/cluster/cluster_reduce.h"
#include "fused/decode_block_body.cuh"
#include "fused/decode_head_plan.h"

namespace heddle {

template <class T, class Team, class Barrier, class Work>
class DecodeHeadBody
    : ClusterBlockBody<T, Team, Barrier, DecodeBlockShape, DecodeHeadMemory, DecodeBlockBarriers<Barrier>, Work> {
  using Base =
      ClusterBlockBody<T, Team, Barrier, DecodeBlockShape, DecodeHeadMemory, DecodeBlockBarriers<Barrier>, Work>;
  using Base::floats, Base::elements;
  using Base::team_, Base::shape_, Base::unit_, Base::barriers_, Base::memory_, Base::at_, Base::work_, Base::waits_;

 public:
  using Base::Base;

  // All lanes of all blocks of the cluster. A block may end when all blocks of its cluster have returned.
  HEDDLE_HOST_DEVICE void run(const UnitOutputs& scratch, float* partials) {
    project();
    ClusterReducer<Team, Barrier> reducer(team_, schedule::Peers::pairs, barriers_.reduce,
                                          memory_ + at_.reduced + at_.reduced_vectors, at_.reduced_vectors, waits_);
    for (int t = 0; t < shape_.tokens; ++t) attend(t, reducer);
    team_.sync();
    work_.mark(DecodeBlockPhase::attend);
    work_.mark(DecodeBlockPhase::merge);
    put_unit_output<Work>(team_, shape_, unit_, scratch, partials, barriers_.arrivals, [&](float* to) {
      project_out(reducer, to);
      work_.mark(DecodeBlockPhase::project_out);
    });
    work_.mark(DecodeBlockPhase::sum);
  }

 private:
  // Line 2, after the norm, which every block has for itself.
  HEDDLE_HOST_DEVICE void project() {
    work_.sum_squares(floats(at_.sums));
    team_.sync();
    work_.normalize(floats(at_.sums), 1, 0, elements(at_.x));
    team_.sync();
    work_.mark(DecodeBlockPhase::normalize);
    work_.project(elements(at_.x), floats(at_.qkv));
    team_.sync();
    work_.mark(DecodeBlockPhase::project);
    work_.mark(DecodeBlockPhase::gather);
    work_.finish_slices(floats(at_.qkv), floats(at_.heads));
    team_.sync();
    work_.mark(DecodeBlockPhase::heads);
  }

  // Line 3. All blocks have all scores, so each has the whole softmax.
  template <class Reducer>
  HEDDLE_HOST_DEVICE void attend(int token, Reducer& reducer) {
    const DecodeHeadPlan plan{shape_};
    const DecodeRange keys = work_.keys_of(token);
    const float* const heads = floats(at_.heads);
    float* const scores = floats(at_.reduced);
    work_.begin_token(token, heads);
    for (int i = 0; i * plan.tile_keys() < keys.count(); ++i) {
      const DecodeRange tile = DecodeHeadPlan::tile_of(keys, i, plan.tile_keys());
      work_.score(token, tile, heads, scores);
      team_.sync();
      reducer.template reduce<float, ReduceOp::sum>(memory_ + at_.reduced, plan.score_vectors(unit_, tile.count()));
      team_.sync();
      work_.add_values(token, tile, heads, scores);
      team_.sync();
    }
    work_.end_token(token, elements(at_.attended));
  }

  // Lines 4 to 6, but for the sum over units. to [tokens][hidden], of which it writes this block's rows.
  template <class Reducer>
  HEDDLE_HOST_DEVICE void project_out(Reducer& reducer, float* to) {
    const DecodeBlockShape& shape = shape_;  // by the base's name nvcc loses it within braces
    const DecodeHeadPlan plan{shape};
    const DecodeRange mine = shape.output_rows_of(team_.block());
    float* const outputs = floats(at_.reduced);
    for (int i = 0; i * plan.tile_rows() < shape.hidden; ++i) {
      const DecodeRange tile = DecodeHeadPlan::tile_of({0, shape.hidden}, i, plan.tile_rows());
      work_.project_out(elements(at_.attended), tile, outputs);
      team_.sync();
      reducer.template reduce<float, ReduceOp::sum>(memory_ + at_.reduced, plan.output_vectors(tile.count()));
      team_.sync();
      for (int at = team_.lane(); at < shape.tokens * tile.count(); at += team_.lanes()) {
        const int token = at / tile.count(), row = tile.begin + at % tile.count();
        if (row >= mine.begin && row < mine.end) to[token * shape.hidden + row] = outputs[at] + work_.output_bias(row);
      }
      team_.sync();
    }
  }
};

}  // namespace heddle
