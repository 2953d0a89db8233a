// Which block of which cluster computes what in latent_block.h: index maths, the same on the host and in kernels.
//
// A unit is a cluster and, in the projections, its part of the heads. Queries of all heads meet the latents of all tokens,
// so between the two all units meet (in global memory), and once more behind attention:
//
//   1. of the unit    query rows of the down projection, a part for each block, which the cluster gathers; a block absorbs
//                     them into a part of each latent. Rows of the latent are shared by all blocks of all units
//   2. of a segment   one of `splits` parts of a sequence's tokens, whose tiles are divided over the blocks of a cluster:
//                     a tile serves all heads. Each block merges some heads of what the cluster has
//   3. of the unit    its heads' segments put together, rows of W_UV, a part for each block, which the cluster gathers;
//                     rows of the output projection, of which a block multiplies the unit's columns
//
// ClusterFusion's Alg. 4 (LatentFlow::head_a_cluster) has a head in each cluster from beginning to end: units never meet,
// and each reads the latents' weights and all latents.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "fused/decode_block_plan.h"

namespace heddle {

enum class LatentFlow : std::uint8_t { all_heads_a_tile, head_a_cluster };

struct LatentBlockMapping {
  int cluster = 1;  // blocks: 1, 2, 4, 8 or 16
  int units = 1;    // clusters, no more than heads
  int splits = 1;   // of each sequence's tokens, by all_heads_a_tile
  LatentFlow flow = LatentFlow::all_heads_a_tile;
};

struct LatentBlockShape {
  int tokens = 0, hidden = 0, heads = 0, nope_dim = 0, rope_dim = 0, value_dim = 0, latent_dim = 0, partials = 1;
  LatentBlockMapping mapping;

  HEDDLE_HOST_DEVICE constexpr int query_dim() const { return nope_dim + rope_dim; }
  HEDDLE_HOST_DEVICE constexpr int cached_dim() const { return latent_dim + rope_dim; }
  HEDDLE_HOST_DEVICE constexpr int units() const { return mapping.units; }
  HEDDLE_HOST_DEVICE constexpr int blocks() const { return mapping.units * mapping.cluster; }
  HEDDLE_HOST_DEVICE constexpr bool uses_grid_barriers() const { return mapping.flow == LatentFlow::all_heads_a_tile; }

  HEDDLE_HOST_DEVICE constexpr DecodeRange heads_of(int unit) const { return decode_part(heads, unit, units()); }
  HEDDLE_HOST_DEVICE constexpr int most_heads() const { return (heads + units() - 1) / units(); }

  // The features of the new residual that a block writes.
  HEDDLE_HOST_DEVICE constexpr DecodeRange features_of(int unit, int rank) const {
    return decode_part(hidden, unit * mapping.cluster + rank, blocks());
  }

  // Rows of the down projection. A unit's query rows are numbered from 0; each block has as many, but for the last ones.
  HEDDLE_HOST_DEVICE constexpr int query_rows(int unit) const { return heads_of(unit).count() * query_dim(); }
  HEDDLE_HOST_DEVICE constexpr int block_query_rows() const { return share(most_heads() * query_dim()); }
  HEDDLE_HOST_DEVICE constexpr DecodeRange query_rows_of(int unit, int rank) const {
    return chunk(query_rows(unit), block_query_rows(), rank);
  }
  HEDDLE_HOST_DEVICE constexpr int down_row_of_query(int unit, int row) const {
    return heads_of(unit).begin * query_dim() + row;
  }
  // Those of the latent and the shared key, numbered from 0. Alg. 4 gathers them in each cluster.
  HEDDLE_HOST_DEVICE constexpr int block_latent_rows() const { return share(cached_dim()); }
  HEDDLE_HOST_DEVICE constexpr DecodeRange latent_rows_of(int unit, int rank) const {
    return uses_grid_barriers() ? decode_part(cached_dim(), unit * mapping.cluster + rank, blocks())
                                : chunk(cached_dim(), block_latent_rows(), rank);
  }
  HEDDLE_HOST_DEVICE constexpr int down_row_of_latent(int row) const { return heads * query_dim() + row; }

  // Elements of the latent space that a block absorbs queries into.
  HEDDLE_HOST_DEVICE constexpr int block_elements() const { return share(latent_dim); }
  HEDDLE_HOST_DEVICE constexpr DecodeRange elements_of(int rank) const {
    return chunk(latent_dim, block_elements(), rank);
  }

  // Segments of attention. Cluster `unit` has unit, unit + units, ...
  HEDDLE_HOST_DEVICE constexpr int segments() const { return tokens * mapping.splits; }
  HEDDLE_HOST_DEVICE constexpr int token_of(int segment) const { return segment / mapping.splits; }
  HEDDLE_HOST_DEVICE constexpr int segments_of(int unit) const {
    return unit < segments() ? (segments() - unit + units() - 1) / units() : 0;
  }
  // The positions of a segment that a block attends to, the newest one too.
  static constexpr int kKeyTile = 16;
  HEDDLE_HOST_DEVICE constexpr DecodeRange keys_of(int context_len, int segment, int rank) const {
    const int tiles = (context_len + kKeyTile - 1) / kKeyTile;
    const DecodeRange of_split = decode_part(tiles, segment % mapping.splits, mapping.splits);
    const DecodeRange of_block = decode_part(of_split.count(), rank, mapping.cluster);
    const auto position = [&](int tile) {
      const int first = (of_split.begin + tile) * kKeyTile;
      return first < context_len ? first : context_len;
    };
    return {position(of_block.begin), position(of_block.end)};
  }

  // Elements from one head's absorbed query to the next one's in shared memory: so that eight heads lie in other banks.
  HEDDLE_HOST_DEVICE constexpr int absorbed_stride() const { return cached_dim() + 8; }

  // A partial attention of one head: weighted latents, then the largest score and the sum of weights.
  static constexpr int kRecordWords = 4;
  HEDDLE_HOST_DEVICE constexpr int record() const { return latent_dim + kRecordWords; }
  // The heads whose partial attention a block merges; as many in every block, whether there are so many or not.
  HEDDLE_HOST_DEVICE constexpr int merged_heads() const { return (heads + mapping.cluster - 1) / mapping.cluster; }
  HEDDLE_HOST_DEVICE constexpr DecodeRange merged_heads_of(int rank) const {
    return chunk(heads, merged_heads(), rank);
  }

  // Rows of W_UV, numbered as query rows are.
  HEDDLE_HOST_DEVICE constexpr int block_value_rows() const { return share(most_heads() * value_dim); }
  HEDDLE_HOST_DEVICE constexpr DecodeRange value_rows_of(int unit, int rank) const {
    return chunk(heads_of(unit).count() * value_dim, block_value_rows(), rank);
  }

  HEDDLE_HOST_DEVICE constexpr DecodeRange output_rows_of(int rank) const {
    return decode_output_rows(hidden, rank, mapping.cluster);
  }
  HEDDLE_HOST_DEVICE constexpr DecodeRange units_of(int partial) const {
    return decode_part(units(), partial, partials);
  }
  HEDDLE_HOST_DEVICE constexpr int partial_of(int unit) const { return decode_partial_of(unit, units(), partials); }

 private:
  // Of a gathered vector: as many elements in every block, in whole pieces of 16 bytes.
  HEDDLE_HOST_DEVICE constexpr int share(int count) const {
    const int each = (count + mapping.cluster - 1) / mapping.cluster;
    return (each + 7) / 8 * 8;
  }
  static HEDDLE_HOST_DEVICE constexpr DecodeRange chunk(int count, int each, int index) {
    const int begin = index * each, end = begin + each;
    return {begin < count ? begin : count, end < count ? end : count};
  }
};

// Every row, element, head and position is some block's, once; a block's keys are no more than its cluster's.
constexpr bool latent_block_plan_is_complete(const LatentBlockShape& shape, int context_len) {
  int heads = 0, latent_rows = 0, features = 0;
  for (int unit = 0; unit < shape.units(); ++unit) {
    if (shape.heads_of(unit).begin != heads || shape.heads_of(unit).count() > shape.most_heads()) return false;
    heads = shape.heads_of(unit).end;
    if (!shape.uses_grid_barriers()) latent_rows = 0;
    int query_rows = 0, value_rows = 0;
    for (int rank = 0; rank < shape.mapping.cluster; ++rank) {
      if (shape.query_rows_of(unit, rank).begin != query_rows || shape.value_rows_of(unit, rank).begin != value_rows ||
          shape.latent_rows_of(unit, rank).begin != latent_rows || shape.features_of(unit, rank).begin != features)
        return false;
      query_rows = shape.query_rows_of(unit, rank).end;
      value_rows = shape.value_rows_of(unit, rank).end;
      latent_rows = shape.latent_rows_of(unit, rank).end;
      features = shape.features_of(unit, rank).end;
    }
    if (query_rows != shape.query_rows(unit) || value_rows != shape.heads_of(unit).count() * shape.value_dim)
      return false;
    if (!shape.uses_grid_barriers() && latent_rows != shape.cached_dim()) return false;
  }
  if (heads != shape.heads || latent_rows != shape.cached_dim() || features != shape.hidden) return false;
  int elements = 0, merged = 0, rows = 0;
  for (int rank = 0; rank < shape.mapping.cluster; ++rank) {
    if (shape.elements_of(rank).begin != elements || shape.merged_heads_of(rank).begin != merged ||
        shape.output_rows_of(rank).begin != rows)
      return false;
    elements = shape.elements_of(rank).end;
    merged = shape.merged_heads_of(rank).end;
    rows = shape.output_rows_of(rank).end;
  }
  if (elements != shape.latent_dim || merged != shape.heads || rows != shape.hidden) return false;
  int position = 0;  // of the first token
  for (int segment = 0; segment < shape.mapping.splits; ++segment)
    for (int rank = 0; rank < shape.mapping.cluster; ++rank) {
      const DecodeRange keys = shape.keys_of(context_len, segment, rank);
      if (keys.begin != position || keys.end < keys.begin) return false;
      position = keys.end;
    }
  int units = 0, segments = 0;
  for (int partial = 0; partial < shape.partials; ++partial) {
    const DecodeRange of = shape.units_of(partial);
    if (of.begin != units) return false;
    for (units = of.begin; units < of.end; ++units) {
      if (shape.partial_of(units) != partial) return false;
      segments += shape.segments_of(units);
    }
  }
  return position == context_len && units == shape.units() && segments == shape.segments();
}
static_assert(latent_block_plan_is_complete({1, 2048, 16, 128, 64, 128, 512, 8, {8, 16, 16}}, 4096));
static_assert(latent_block_plan_is_complete({16, 2048, 16, 128, 64, 128, 512, 1, {8, 16, 3}}, 1));
static_assert(latent_block_plan_is_complete({3, 2048, 8, 128, 64, 128, 512, 8, {16, 8, 2}}, 1000));
static_assert(latent_block_plan_is_complete({5, 64, 3, 12, 10, 22, 40, 2, {4, 2, 7}}, 33));
static_assert(latent_block_plan_is_complete({1, 2048, 16, 128, 64, 128, 512, 8, {8, 16, 1, LatentFlow::head_a_cluster}},
                                            4097));

// Where things lie in a block's shared memory, in vectors of 16 bytes, by all_heads_a_tile. The three parts of the work
// have the same place: all blocks have done with one when the first begins the next.
struct LatentBlockMemory {
  // 1.
  int x;                       // [tokens][hidden]
  int queries, query_vectors;  // [cluster][tokens][block_query_rows], float32
  int heads;                   // [tokens][most_heads][query_dim]: queries, rotated
  // 2.
  int absorbed;                    // [heads][absorbed_stride], of the segment's token
  int newest;                      // [cached_dim]: the row that the token adds to the cache
  int partial;                     // [cluster][merged_heads][record], float32; before that, the kernel's tiles
  int received, received_vectors;  // [1 or 2][cluster][merged_heads][record]: one where no cluster has two segments
  // 3.
  int attended;               // [tokens][most_heads][latent_dim]
  int values, value_vectors;  // [cluster][tokens][block_value_rows]
  int work;                   // the kernel's own
  int end;

  HEDDLE_HOST_DEVICE constexpr LatentBlockMemory(const LatentBlockShape& shape, int element_bytes, int work_vectors = 0,
                                                 int tile_vectors = 0)
      : x(0),
        queries(vectors(shape.tokens * shape.hidden * element_bytes)),
        query_vectors(vectors(shape.tokens * shape.block_query_rows() * 4)),
        heads(queries + shape.mapping.cluster * query_vectors),
        absorbed(0),
        newest(vectors(shape.heads * shape.absorbed_stride() * element_bytes)),
        partial(newest + vectors(shape.cached_dim() * element_bytes)),
        received(0),
        received_vectors(vectors(shape.merged_heads() * shape.record() * 4)),
        attended(0),
        values(vectors(shape.tokens * shape.most_heads() * shape.latent_dim * element_bytes)),
        value_vectors(vectors(shape.tokens * shape.block_value_rows() * element_bytes)),
        work(0),
        end(0) {
    const int cluster = shape.mapping.cluster;
    const int of_partial = cluster * received_vectors, buffers = shape.segments_of(0) > 1 ? 2 : 1;
    received = partial + (of_partial > tile_vectors ? of_partial : tile_vectors);
    const int of_first = heads + vectors(shape.tokens * shape.most_heads() * shape.query_dim() * element_bytes);
    const int of_second = received + buffers * cluster * received_vectors, of_third = values + cluster * value_vectors;
    work = of_first > of_second ? of_first : of_second;
    if (work < of_third) work = of_third;
    end = work + work_vectors;
  }

  HEDDLE_HOST_DEVICE static constexpr int vectors(int bytes) { return (bytes + 15) / 16; }
};

// The same by Alg. 4, where other blocks may be a step ahead: nothing shares a place.
struct LatentHeadMemory {
  int x;                          // [tokens][hidden]
  int queries, query_vectors;     // [cluster][tokens][block_query_rows], float32
  int latents, latent_vectors;    // [cluster][tokens][block_latent_rows], float32
  int elements, element_vectors;  // [cluster][tokens][block_elements]: the absorbed query
  int heads;                      // [tokens][query_dim]: the query, rotated
  int absorbed;                   // [tokens][cached_dim]
  int newest;                     // [tokens][cached_dim]
  int merge, merge_vectors;       // [3]: data [tokens][record], float32, and two slots
  int maxima, maxima_vectors;     // [tokens], float32
  int attended;                   // [tokens][latent_dim]
  int sums, sum_vectors;          // [tokens][value_dim], float32: of a part of the latent
  int values;                     // [tokens][value_dim]
  int end;

  HEDDLE_HOST_DEVICE constexpr LatentHeadMemory(const LatentBlockShape& shape, int element_bytes)
      : x(0),
        queries(vectors(shape.tokens * shape.hidden * element_bytes)),
        query_vectors(vectors(shape.tokens * shape.block_query_rows() * 4)),
        latents(queries + shape.mapping.cluster * query_vectors),
        latent_vectors(vectors(shape.tokens * shape.block_latent_rows() * 4)),
        elements(latents + shape.mapping.cluster * latent_vectors),
        element_vectors(vectors(shape.tokens * shape.block_elements() * element_bytes)),
        heads(elements + shape.mapping.cluster * element_vectors),
        absorbed(heads + vectors(shape.tokens * shape.query_dim() * element_bytes)),
        newest(absorbed + vectors(shape.tokens * shape.cached_dim() * element_bytes)),
        merge(newest + vectors(shape.tokens * shape.cached_dim() * element_bytes)),
        merge_vectors(vectors(shape.tokens * shape.record() * 4)),
        maxima(0),
        maxima_vectors(vectors(shape.tokens * 4)),
        attended(0),
        sums(0),
        sum_vectors(vectors(shape.tokens * shape.value_dim * 4)),
        values(0),
        end(0) {
    maxima = merge + merge_vectors + 2 * slot_vectors();
    attended = maxima + maxima_vectors;
    sums = attended + vectors(shape.tokens * shape.latent_dim * element_bytes);
    values = sums + sum_vectors;
    end = values + vectors(shape.tokens * shape.value_dim * element_bytes);
  }

  // Of ClusterReduce: what is reduced is no larger.
  HEDDLE_HOST_DEVICE constexpr int slot_vectors() const {
    return merge_vectors > sum_vectors ? merge_vectors : sum_vectors;
  }
  HEDDLE_HOST_DEVICE static constexpr int vectors(int bytes) { return LatentBlockMemory::vectors(bytes); }
};

}  // namespace heddle
