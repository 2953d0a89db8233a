// What one block of a cluster does in latent_block.h where a tile of latents serves all heads: the exchanges, and what lies
// between them. Written once for a block of a kernel and for a thread of the CPU; the work between two exchanges is
// `Work`'s (latent_block_cpu.h).
#pragma once

#include <cstdint>

#include "device/cluster/cluster_gather.h"
#include "device/cluster/cluster_reduce.h"
#include "fused/cluster_block_body.cuh"
#include "fused/grid_barrier.cuh"
#include "fused/latent_block/latent_block_scratch.cuh"

namespace heddle {

// What a block keeps in shared memory beside LatentBlockMemory or LatentHeadMemory. As ReduceBarriers: init() by one
// thread, then a barrier of the cluster.
template <class Barrier>
struct LatentBlockBarriers {
  template <class Team>
  HEDDLE_HOST_DEVICE void init(const Team& team) {
    queries.init();
    latents.init();
    absorbed.init();
    attended.init();
    values.init();
    reduce.init(team);
  }
  GatherBarriers<Barrier> queries, latents, absorbed, attended, values;
  ReduceBarriers<Barrier> reduce;
  std::uint32_t arrivals;  // of this block's output rows, before this block
};

template <class T, class Team, class Barrier, class Work>
class LatentBlockBody : ClusterBlockBody<T, Team, Barrier, const LatentBlockShape&, LatentBlockMemory,
                                         LatentBlockBarriers<Barrier>, Work> {
  using Base = ClusterBlockBody<T, Team, Barrier, const LatentBlockShape&, LatentBlockMemory,
                                LatentBlockBarriers<Barrier>, Work>;
  using Base::floats, Base::elements, Base::gather_directly;
  using Base::team_, Base::shape_, Base::unit_, Base::barriers_, Base::memory_, Base::at_, Base::work_, Base::waits_;

 public:
  // `memory`: LatentBlockMemory.end vectors of shared memory, with room for Work::kTileVectors where partial attention lies.
  HEDDLE_HOST_DEVICE LatentBlockBody(const Team& team, const LatentBlockShape& shape, int unit,
                                     LatentBlockBarriers<Barrier>& barriers, Vector16* memory, Work& work,
                                     const KernelWaits& waits)
      : Base(team, shape, unit, barriers, memory, work, waits, 0, Work::kTileVectors) {}

  // All lanes of all blocks of all clusters, which all run at once. A block may end when all blocks of its cluster have
  // returned.
  HEDDLE_HOST_DEVICE void run(const LatentBlockScratch& scratch, float* partials) {
    const auto blocks = static_cast<std::uint64_t>(shape_.blocks());
    project(scratch);
    grid_barrier(team_, scratch.barriers, blocks, waits_);
    attend(scratch);
    grid_barrier(team_, scratch.barriers + 1, blocks, waits_);
    finish(scratch, partials);
    if (team_.lane() == 0) reset_grid_barriers(scratch.barriers, kLatentBarriers, blocks);
  }

  // The three parts, between which all blocks of all units meet.

  HEDDLE_HOST_DEVICE void project(const LatentBlockScratch& scratch) {
    const int rank = team_.block(), cached = shape_.cached_dim(), heads = shape_.heads;
    T *const x = elements(at_.x), *const queries = elements(at_.heads);
    float* const rows = floats(at_.queries);
    auto* const absorbed = static_cast<T*>(scratch.queries);
    work_.normalize(x);
    team_.sync();
    work_.project(x, rows + rank * at_.query_vectors * 4,
                  [&](int token, int row, float value) { scratch.latents[token * cached + row] = value; });
    gather_directly(barriers_.queries, at_.queries, at_.query_vectors);
    work_.finish_queries(rows, queries);
    team_.sync();
    const int first = shape_.heads_of(unit_).begin;
    work_.absorb(queries, [&](int token, int head, int element, T value) {
      absorbed[(std::int64_t{token} * heads + first + head) * cached + element] = value;
    });
    if (rank == 0)
      work_.copy_rotated(queries, [&](int token, int head, int i, T value) {
        absorbed[(std::int64_t{token} * heads + first + head) * cached + shape_.latent_dim + i] = value;
      });
  }

  HEDDLE_HOST_DEVICE void attend(const LatentBlockScratch& scratch) {
    const int rank = team_.block(), cached = shape_.cached_dim(), record = shape_.record();
    T *const queries = elements(at_.absorbed), *const newest = elements(at_.newest);
    ClusterGatherer<Team, Barrier> exchanger(team_, schedule::Peers::pairs, barriers_.attended, memory_ + at_.received,
                                             at_.received_vectors, waits_);
    float* const partial = floats(at_.partial);
    for (int segment = unit_; segment < shape_.segments(); segment += shape_.units()) {
      const int token = shape_.token_of(segment), context = work_.context_len(token);
      const DecodeRange keys = shape_.keys_of(context, segment, rank);
      team_.sync();  // the last segment's queries have been read, and its partial attention has been sent
      work_.load_queries(static_cast<const T*>(scratch.queries) + std::int64_t{token} * shape_.heads * cached, queries);
      const bool has_newest = keys.end == context && keys.count() > 0;
      if (has_newest)
        work_.finish_latent(
            token, [&](int row) { return Work::load_shared(scratch.latents + token * cached + row); }, newest, true);
      team_.sync();
      work_.attend(token, keys, has_newest ? newest : nullptr, queries, shape_.heads, partial);
      for (int i = shape_.heads * record + team_.lane(); i < at_.received_vectors * 4 * team_.blocks();
           i += team_.lanes())
        partial[i] = 0;  // of no head
      team_.sync();
      const Vector16* const all = exchanger.exchange(memory_ + at_.partial, at_.received_vectors);
      const DecodeRange heads = shape_.merged_heads_of(rank);
      float* const to = scratch.parts + (std::int64_t{segment} * shape_.heads + heads.begin) * record;
      const auto of_block = [&](int block, int head) {
        return reinterpret_cast<const float*>(all + block * at_.received_vectors) + head * record;
      };
      for (int i = team_.lane(); i < heads.count() * shape_.latent_dim; i += team_.lanes()) {
        const int head = i / shape_.latent_dim, d = i % shape_.latent_dim;
        const Merged merged = merge(
            team_.blocks(), d, [&](int block) { return of_block(block, head); },
            [](const float* from) { return *from; });
        to[head * record + d] = merged.value;
        if (d != 0) continue;
        to[head * record + shape_.latent_dim] = merged.largest;
        to[head * record + shape_.latent_dim + 1] = merged.sum;
      }
    }
  }

  HEDDLE_HOST_DEVICE void finish(const LatentBlockScratch& scratch, float* partials) {
    const int record = shape_.record(), splits = shape_.mapping.splits;
    const DecodeRange heads = shape_.heads_of(unit_);
    T *const attended = elements(at_.attended), *const values = elements(at_.values);
    for (int i = team_.lane(); i < shape_.tokens * heads.count() * shape_.latent_dim; i += team_.lanes()) {
      const int d = i % shape_.latent_dim, row = i / shape_.latent_dim;
      const int token = row / heads.count(), head = row % heads.count();
      const auto of_split = [&](int split) {
        return scratch.parts + ((std::int64_t{token} * splits + split) * shape_.heads + heads.begin + head) * record;
      };
      const Merged merged = merge(splits, d, of_split, [](const float* from) { return Work::load_shared(from); });
      attended[(token * shape_.most_heads() + head) * shape_.latent_dim + d] = Work::rounded(merged.value / merged.sum);
    }
    team_.sync();
    work_.values(attended, values + team_.block() * (at_.value_vectors * 16 / static_cast<int>(sizeof(T))));
    gather_directly(barriers_.values, at_.values, at_.value_vectors);
    put_unit_output<Work>(team_, shape_, unit_, scratch.outputs, partials, barriers_.arrivals,
                          [&](float* to) { work_.project_out(values, shape_.block_value_rows(), to); });
  }

 private:
  struct Merged {
    float value, largest, sum;
  };
  // Element d of `count` records, in order. Some may have no keys.
  template <class RecordOf, class Load>
  HEDDLE_HOST_DEVICE Merged merge(int count, int d, const RecordOf& record_of, const Load& load) const {
    const int dim = shape_.latent_dim;
    float largest = load(record_of(0) + dim);
    for (int i = 1; i < count; ++i) largest = combined<ReduceOp::max>(largest, load(record_of(i) + dim));
    const float shift = largest < -kLargestScore ? 0 : largest;  // -infinity: no keys at all
    float value = 0, sum = 0;
    for (int i = 0; i < count; ++i) {
      const float weight = Work::exp2(load(record_of(i) + dim) - shift);
      value += load(record_of(i) + d) * weight;
      sum += load(record_of(i) + dim + 1) * weight;
    }
    return {value, largest, sum};
  }
  static constexpr float kLargestScore = 3.4028234e38f;
};

}  // namespace heddle
