// What one block of a cluster does in latent_block.h by ClusterFusion's Alg. 4, in which a cluster has a head from the
// projections to the output and reads all latents for it. A variant to compare with: clusters never meet, but every one
// projects the new latent, and older latents are read once for each head.
//
// As in the paper but for three things. Ranks exchange by pairs, so all have the same bits (schedule/tree.h); scores, sums
// and what is gathered before a norm are in float32; outputs are added in the order of heads, without atomics.
#pragma once

#include "fused/latent_block/latent_block_body.cuh"
#include "fused/tree_merge.cuh"

namespace heddle {

template <class T, class Team, class Barrier, class Work>
class LatentHeadBody : ClusterBlockBody<T, Team, Barrier, const LatentBlockShape&, LatentHeadMemory,
                                        LatentBlockBarriers<Barrier>, Work> {
  using Base =
      ClusterBlockBody<T, Team, Barrier, const LatentBlockShape&, LatentHeadMemory, LatentBlockBarriers<Barrier>, Work>;
  using Base::floats, Base::elements, Base::gather_by_tree;
  using Base::team_, Base::shape_, Base::unit_, Base::barriers_, Base::memory_, Base::at_, Base::work_, Base::waits_;

 public:
  using Base::Base;

  // All lanes of all blocks of the cluster. A block may end when all blocks of its cluster have returned.
  HEDDLE_HOST_DEVICE void run(const LatentBlockScratch& scratch, float* partials) {
    project();
    absorb();
    ClusterReducer<Team, Barrier> reducer(team_, schedule::Peers::pairs, barriers_.reduce,
                                          memory_ + at_.merge + at_.merge_vectors, at_.slot_vectors(), waits_);
    attend(reducer);
    values(reducer);
    put_unit_output<Work>(team_, shape_, unit_, scratch.outputs, partials, barriers_.arrivals,
                          [&](float* to) { work_.project_out(elements(at_.values), shape_.value_dim, to); });
  }

 private:
  // Lines 2 to 4.
  HEDDLE_HOST_DEVICE void project() {
    const int rank = team_.block(), each = shape_.block_latent_rows();
    T* const x = elements(at_.x);
    float* const latents = floats(at_.latents);
    work_.normalize(x);
    team_.sync();
    const int first = shape_.latent_rows_of(unit_, rank).begin;
    work_.project(x, floats(at_.queries) + rank * at_.query_vectors * 4, [&](int token, int row, float value) {
      latents[rank * at_.latent_vectors * 4 + token * each + row - first] = value;
    });
    gather_by_tree(barriers_.queries, at_.queries, at_.query_vectors);
    gather_by_tree(barriers_.latents, at_.latents, at_.latent_vectors);
    work_.finish_queries(floats(at_.queries), elements(at_.heads));
    for (int t = 0; t < shape_.tokens; ++t)
      work_.finish_latent(
          t, [&](int row) { return latents[(row / each) * at_.latent_vectors * 4 + t * each + row % each]; },
          elements(at_.newest) + t * shape_.cached_dim(), unit_ == 0 && rank == 0);
    team_.sync();
  }

  // Lines 5 and 6.
  HEDDLE_HOST_DEVICE void absorb() {
    const int rank = team_.block(), each = shape_.block_elements(), cached = shape_.cached_dim();
    const int of_segment = at_.element_vectors * 16 / static_cast<int>(sizeof(T));
    T *const segments = elements(at_.elements), *const absorbed = elements(at_.absorbed);
    const int first = shape_.elements_of(rank).begin;
    work_.absorb(elements(at_.heads), [&](int token, int, int element, T value) {
      segments[rank * of_segment + token * each + element - first] = value;
    });
    gather_by_tree(barriers_.absorbed, at_.elements, at_.element_vectors);
    for (int i = team_.lane(); i < shape_.tokens * shape_.latent_dim; i += team_.lanes()) {
      const int token = i / shape_.latent_dim, element = i % shape_.latent_dim;
      absorbed[token * cached + element] = segments[element / each * of_segment + token * each + element % each];
    }
    work_.copy_rotated(elements(at_.heads), [&](int token, int, int i, T value) {
      absorbed[token * cached + shape_.latent_dim + i] = value;
    });
    team_.sync();
  }

  // Lines 7 to 10.
  template <class Reducer>
  HEDDLE_HOST_DEVICE void attend(Reducer& reducer) {
    const int cached = shape_.cached_dim();
    for (int t = 0; t < shape_.tokens; ++t) {
      const int context = work_.context_len(t);
      const DecodeRange keys = shape_.keys_of(context, 0, team_.block());
      const bool has_newest = keys.end == context && keys.count() > 0;
      work_.attend(t, keys, has_newest ? elements(at_.newest) + t * cached : nullptr,
                   elements(at_.absorbed) + t * cached, 1, floats(at_.merge) + t * shape_.record());
    }
    const TreeMergeMemory at{.records = memory_ + at_.merge,
                             .record_vectors = at_.merge_vectors,
                             .maxima = memory_ + at_.maxima,
                             .maxima_vectors = at_.maxima_vectors,
                             .rows = shape_.tokens,
                             .dim = shape_.latent_dim,
                             .record = shape_.record()};
    merge_by_tree<T, Work>(team_, reducer, at, elements(at_.attended));
    team_.sync();
  }

  // Lines 11 and 12: of W_UV each block has a part of the latent's columns.
  template <class Reducer>
  HEDDLE_HOST_DEVICE void values(Reducer& reducer) {
    float* const sums = floats(at_.sums);
    T* const values = elements(at_.values);
    work_.partial_values(elements(at_.attended), sums);
    team_.sync();
    reducer.template reduce<float, ReduceOp::sum>(memory_ + at_.sums, at_.sum_vectors);
    team_.sync();
    for (int i = team_.lane(); i < shape_.tokens * shape_.value_dim; i += team_.lanes())
      values[i] = Work::rounded(sums[i]);
    team_.sync();
  }
};

}  // namespace heddle
