// Which block of which cluster computes what in decode_block.h: index maths, the same on the host and in kernels.
//
// A cluster has one unit: a KV head and the part of its query heads that share the loaded keys. Its blocks share
//   - the hidden features, of which each block sums squares and normalises a slice
//   - the rows of Wqkv of the unit's heads
//   - the older keys of each sequence; the last block also has the new key
//   - the rows of Wo, of which a block multiplies the unit's columns
// So a unit gives a partial output; units are put together in `num_partials` groups.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "device/even_parts.h"

namespace heddle {

// How the blocks of a cluster put their partial attention together.
enum class DecodeMerge : std::uint8_t {
  directly,  // each pushes its own to all others
  tree       // ClusterReduce of maxima, then of rescaled sums, as in Alg. 3
};

// Who normalises: the blocks of a cluster a slice of the features each, which they exchange, or every block all of them,
// which reads the residual and the deltas more often but saves two exchanges.
enum class DecodeNorm : std::uint8_t { shared, every_block };

// Whether a block asks for the weights of its next phase (the L2 cache keeps them) before it waits for others.
enum class DecodePrefetch : std::uint8_t { none, next_weights };

// What the blocks of a cluster share in attention. By ClusterFusion's SplitToken (Alg. 3), the older keys; by its
// SplitHead (Alg. 5), the elements of each head, a variant to compare with (decode_head_plan.h).
enum class DecodeSplit : std::uint8_t { tokens, head };

// How segments get from block to block of a cluster: by distributed shared memory, or by global memory, that is the L2 cache, a
// variant to compare with.
enum class DecodeExchange : std::uint8_t { on_chip, off_chip };

// Which way a GPU computes it; the CPU takes clusters of one block. It chooses the order of sums, and nothing else.
struct DecodeBlockMapping {
  int cluster = 1;  // blocks: 1, 2, 4, 8 or 16
  int parts = 1;    // of the query heads of a KV head, each a unit
  DecodeMerge merge = DecodeMerge::directly;
  DecodePrefetch prefetch = DecodePrefetch::next_weights;
  DecodeNorm norm = DecodeNorm::shared;
  // More than 0: no clusters, but so many blocks, one an SM, that share all rows and keys (decode_stream_plan.h).
  int streamed_blocks = 0;
  DecodeSplit split = DecodeSplit::tokens;
  int exchanged = 2048;  // SplitHead: scores or outputs, float32, that a block sums with others' at a time
  DecodeExchange exchange = DecodeExchange::on_chip;
};

struct DecodeRange {
  int begin, end;
  HEDDLE_HOST_DEVICE constexpr int count() const { return end - begin; }
};

// Part `index` of `parts` even ones of `count` things.
HEDDLE_HOST_DEVICE constexpr DecodeRange decode_part(int count, int index, int parts) {
  const auto begin = [&](int i) {
    return static_cast<int>(begin_of_part<std::uint64_t>(
        static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(parts)));
  };
  return {begin(index), begin(index + 1)};
}

// Units' outputs are put together in partials, an even part of the units in each.
HEDDLE_HOST_DEVICE constexpr int decode_partial_of(int unit, int units, int partials) {
  return static_cast<int>(part_of<std::uint64_t>(static_cast<std::uint64_t>(units), static_cast<std::uint64_t>(unit),
                                                 static_cast<std::uint64_t>(partials)));
}

// The rows of the output projection that block `rank` of a cluster has; all but the last have a multiple of the tile.
inline constexpr int kDecodeRowTile = 16;
HEDDLE_HOST_DEVICE constexpr DecodeRange decode_output_rows(int hidden, int rank, int cluster) {
  const DecodeRange tiles = decode_part((hidden + kDecodeRowTile - 1) / kDecodeRowTile, rank, cluster);
  const int end = tiles.end * kDecodeRowTile;
  return {tiles.begin * kDecodeRowTile, end < hidden ? end : hidden};
}

// Element i of block `rank`'s slice of a query or key, by SplitHead: one half of a slice are neighbours in the head's first
// half, the other their partners in its second half, which RoPE rotates together.
HEDDLE_HOST_DEVICE constexpr int decode_key_element(int head_dim, int slice, int rank, int i) {
  const int half = slice / 2;
  return rank * half + (i < half ? i : head_dim / 2 + i - half);
}

struct DecodeBlockShape {
  int tokens = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, partials = 1;
  DecodeBlockMapping mapping;
  int page_size = 64;

  HEDDLE_HOST_DEVICE constexpr int group() const { return heads / kv_heads; }
  HEDDLE_HOST_DEVICE constexpr int units() const { return kv_heads * mapping.parts; }
  HEDDLE_HOST_DEVICE constexpr int blocks() const { return units() * mapping.cluster; }

  HEDDLE_HOST_DEVICE constexpr int kv_head(int unit) const { return unit / mapping.parts; }
  // Whether the unit writes the new keys and values of its KV head.
  HEDDLE_HOST_DEVICE constexpr bool writes_cache(int unit) const { return unit % mapping.parts == 0; }
  // The query heads of a unit, of all heads.
  HEDDLE_HOST_DEVICE constexpr DecodeRange heads_of(int unit) const {
    const DecodeRange in_group = decode_part(group(), unit % mapping.parts, mapping.parts);
    const int first = kv_head(unit) * group();
    return {first + in_group.begin, first + in_group.end};
  }
  HEDDLE_HOST_DEVICE constexpr int most_heads() const { return (group() + mapping.parts - 1) / mapping.parts; }

  // The features that a block normalises; as many in every block.
  HEDDLE_HOST_DEVICE constexpr int slice() const { return hidden / mapping.cluster; }
  HEDDLE_HOST_DEVICE constexpr DecodeRange features_of(int rank) const {
    if (mapping.norm == DecodeNorm::every_block || splits_head()) return {0, hidden};
    return {rank * slice(), (rank + 1) * slice()};
  }

  // SplitHead: a block has as many elements of each head, neighbours of a value, of a query or a key as below.
  HEDDLE_HOST_DEVICE constexpr bool splits_head() const { return mapping.split == DecodeSplit::head; }
  HEDDLE_HOST_DEVICE constexpr int head_slice() const { return head_dim / mapping.cluster; }
  HEDDLE_HOST_DEVICE constexpr int value_element(int rank, int i) const { return rank * head_slice() + i; }
  HEDDLE_HOST_DEVICE constexpr int key_element(int rank, int i) const {
    return decode_key_element(head_dim, head_slice(), rank, i);
  }

  // Rows of Wqkv: a unit's are those of its query heads, of its key and of its value, numbered from 0; by SplitHead,
  // those of the first block's slices, then those of the next one's.
  HEDDLE_HOST_DEVICE constexpr int unit_rows(int unit) const { return (heads_of(unit).count() + 2) * head_dim; }
  static constexpr int kRowTile = kDecodeRowTile;
  HEDDLE_HOST_DEVICE constexpr int block_rows() const {
    if (splits_head()) return (most_heads() + 2) * head_slice();
    const int each = ((most_heads() + 2) * head_dim + mapping.cluster - 1) / mapping.cluster;
    return (each + kRowTile - 1) / kRowTile * kRowTile;
  }
  HEDDLE_HOST_DEVICE constexpr DecodeRange rows_of(int unit, int rank) const {
    const int all = unit_rows(unit), each = splits_head() ? all / mapping.cluster : block_rows();
    const int begin = rank * each, end = begin + each;
    return {begin < all ? begin : all, end < all ? end : all};
  }
  HEDDLE_HOST_DEVICE constexpr int qkv_row(int unit, int row) const {
    if (!splits_head()) return qkv_head(unit, row / head_dim) * head_dim + row % head_dim;
    const int each = unit_rows(unit) / mapping.cluster, rank = row / each, head = row % each / head_slice();
    const int i = row % each % head_slice();
    const bool of_value = head == heads_of(unit).count() + 1;
    return qkv_head(unit, head) * head_dim + (of_value ? value_element(rank, i) : key_element(rank, i));
  }
  // Of Wqkv's heads, the unit's: its query heads, its key, its value.
  HEDDLE_HOST_DEVICE constexpr int qkv_head(int unit, int head) const {
    const DecodeRange of = heads_of(unit);
    if (head < of.count()) return of.begin + head;
    return heads + (head - of.count()) * kv_heads + kv_head(unit);
  }

  // Of the keys [first, first + count) of a sequence, those of a block.
  HEDDLE_HOST_DEVICE constexpr DecodeRange keys_of(int first, int count, int rank) const {
    const DecodeRange keys = decode_part(count, rank, mapping.cluster);
    return {first + keys.begin, first + keys.end};
  }

  HEDDLE_HOST_DEVICE constexpr DecodeRange output_rows_of(int rank) const {
    return decode_output_rows(hidden, rank, mapping.cluster);
  }

  // The units of a partial output, and the partial output of a unit.
  HEDDLE_HOST_DEVICE constexpr DecodeRange units_of(int partial) const {
    return decode_part(units(), partial, partials);
  }
  HEDDLE_HOST_DEVICE constexpr int partial_of(int unit) const { return decode_partial_of(unit, units(), partials); }
};

// Where things lie in a block's shared memory, in vectors of 16 bytes. The regions of the merge, of the heads and of the
// attended vector take the place of x: all blocks of the cluster have read x when the first one pushes for the merge,
// because it has gathered q, k and v before.
struct DecodeBlockMemory {
  int sums, sums_vectors;      // [cluster][tokens], float32
  int x, x_vectors;            // [cluster][tokens][slice]
  int qkv, qkv_vectors;        // [cluster][tokens][block_rows], float32
  int merge, merge_vectors;    // see kMergeWords; directly [cluster], by the tree [3]: data and two slots
  int maxima, maxima_vectors;  // by the tree [1], float32
  int heads;                   // [tokens][most_heads + 2][head_dim], float32
  int attended;                // [tokens][most_heads * head_dim]
  int work;                    // the kernel's own
  int end;

  // A partial attention: [tokens][most_heads][head_dim + kMergeWords], float32: weighted values, then the largest score
  // and the sum of weights.
  static constexpr int kMergeWords = 4;

  HEDDLE_HOST_DEVICE constexpr DecodeBlockMemory(const DecodeBlockShape& shape, int element_bytes, int work_vectors = 0)
      : sums(0),
        sums_vectors((shape.tokens + 3) / 4),
        x(0),
        x_vectors(shape.tokens * shape.slice() * element_bytes / 16),
        qkv(shape.mapping.cluster * sums_vectors),
        qkv_vectors(shape.tokens * shape.block_rows() / 4),
        merge(0),
        merge_vectors(shape.tokens * shape.most_heads() * (shape.head_dim + kMergeWords) / 4),
        maxima(0),
        maxima_vectors((shape.tokens * shape.most_heads() + 3) / 4),
        heads(0),
        attended(0),
        work(0),
        end(0) {
    const int cluster = shape.mapping.cluster;
    const bool by_tree = shape.mapping.merge == DecodeMerge::tree;
    x = merge = qkv + cluster * qkv_vectors;
    maxima = merge + (by_tree ? 3 : cluster) * merge_vectors;
    heads = maxima + (by_tree ? maxima_vectors : 0);
    attended = heads + shape.tokens * (shape.most_heads() + 2) * shape.head_dim / 4;
    const int after_heads = attended + (shape.tokens * shape.most_heads() * shape.head_dim * element_bytes + 15) / 16;
    const int after_x = x + cluster * x_vectors;
    work = after_heads > after_x ? after_heads : after_x;
    end = work + work_vectors;
  }
};

// Where a unit's blocks leave the segments of DecodeExchange::off_chip, in vectors of global memory: of each exchange a place
// of its own, so that none is written twice in a call.
struct DecodeExchangePlaces {
  int sums, x, qkv, merge, end;

  HEDDLE_HOST_DEVICE constexpr DecodeExchangePlaces(const DecodeBlockMemory& of, int cluster)
      : sums(0),
        x(cluster * of.sums_vectors),
        qkv(x + cluster * of.x_vectors),
        merge(qkv + cluster * of.qkv_vectors),
        end(merge + cluster * of.merge_vectors) {}
};

// Every row of Wqkv that belongs to the unit's heads is some block's, once, and the new keys of a KV head are written
// once; every row of Wo is some block's, and every unit some partial's.
constexpr bool decode_block_plan_is_complete(const DecodeBlockShape& shape) {
  for (int kv_head = 0, heads = 0; kv_head < shape.kv_heads; ++kv_head) {
    int writers = 0;
    for (int unit = 0; unit < shape.units(); ++unit) {
      if (shape.kv_head(unit) != kv_head) continue;
      const DecodeRange of = shape.heads_of(unit);
      if (of.begin != heads || of.count() > shape.most_heads()) return false;
      heads = of.end;
      writers += shape.writes_cache(unit) ? 1 : 0;
      int rows = 0;
      for (int rank = 0; rank < shape.mapping.cluster; ++rank) {
        const DecodeRange of_block = shape.rows_of(unit, rank);
        if (of_block.begin != rows) return false;
        rows = of_block.end;
      }
      if (rows != shape.unit_rows(unit)) return false;
      if (shape.qkv_row(unit, 0) != of.begin * shape.head_dim ||
          shape.qkv_row(unit, rows - 1) != (shape.heads + shape.kv_heads + kv_head + 1) * shape.head_dim - 1)
        return false;
    }
    if (writers != 1 || heads != (kv_head + 1) * shape.group()) return false;
  }
  int rows = 0;
  for (int rank = 0; rank < shape.mapping.cluster; ++rank) {
    if (shape.output_rows_of(rank).begin != rows) return false;
    rows = shape.output_rows_of(rank).end;
  }
  int units = 0;
  for (int partial = 0; partial < shape.partials; ++partial) {
    const DecodeRange of = shape.units_of(partial);
    if (of.begin != units) return false;
    for (units = of.begin; units < of.end; ++units)
      if (shape.partial_of(units) != partial) return false;
  }
  return rows == shape.hidden && units == shape.units();
}
static_assert(decode_block_plan_is_complete({1, 4096, 32, 32, 128, 8, {4}}));
static_assert(decode_block_plan_is_complete({16, 4096, 32, 8, 128, 8, {16}}));
static_assert(decode_block_plan_is_complete({1, 3584, 28, 4, 128, 3, {8, 2}}));
static_assert(decode_block_plan_is_complete({1, 5120, 40, 40, 128, 7, {2}}));
static_assert(decode_block_plan_is_complete({2, 2048, 32, 8, 64, 1, {8, 4}}));
static_assert(decode_block_plan_is_complete({1, 4096, 32, 32, 128, 8, {.cluster = 4, .split = DecodeSplit::head}}));
static_assert(
    decode_block_plan_is_complete({1, 3584, 28, 4, 128, 3, {.cluster = 8, .parts = 2, .split = DecodeSplit::head}}));

}  // namespace heddle
