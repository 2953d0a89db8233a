// Which keys of which sequence and head a block of the decode kernel takes.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace heddle::sm90 {

inline constexpr int kDecodeRows = 16;  // pairs (new token, query head) that share what is loaded: rows of an mma
inline constexpr int kDecodeKeys = 64;  // of a tile

struct DecodeParams {
  AttentionParams attention;
  float score_scale;  // attention.scale * log2(e): weights are powers of two
  int group;          // query heads of a KV head
  int max_rows;       // of a sequence that is attended for
  std::int32_t*
      arrived;   // [blocks], zero between launches: how many parts of the item that begins in a block are there
  float* parts;  // [blocks, 2, kDecodeRows * (head_dim + 2)]: o, then the rows' m, then their l
};

// One sequence of the step as the kernel cuts it: `items` are its pairs of KV head and kDecodeRows rows, each of `tiles`
// tiles of kDecodeKeys keys, from position first_tile * kDecodeKeys on.
struct DecodeSequence {
  int num_new = 0, context_len = 0;
  int first_key = 0;  // that its first new token sees
  int first_tile = 0, tiles = 0, items = 0;

  __device__ DecodeSequence() = default;
  __device__ DecodeSequence(const DecodeParams& params, int sequence) {
    const PagedSequences& sequences = params.attention.sequences;
    if (sequence >= sequences.num_sequences) return;
    num_new = sequences.query_start[sequence + 1] - sequences.query_start[sequence];
    const int rows = num_new * params.group;
    if (rows <= 0 || rows > params.max_rows) return;
    context_len = sequences.context_len[sequence];
    if (params.attention.window > 0) first_key = max(0, context_len - num_new - params.attention.window + 1);
    first_tile = first_key / kDecodeKeys;
    tiles = (context_len + kDecodeKeys - 1) / kDecodeKeys - first_tile;
    items = params.attention.kv.num_kv_heads * ((rows + kDecodeRows - 1) / kDecodeRows);
  }
  __device__ int units() const { return tiles * items; }
};

// All tiles of all items of all sequences, one after the other, are the step's units; each block takes an equal share of
// them. What it takes of one item is a segment; an item that several blocks share is merged from its parts.
struct DecodeSegment {
  DecodeSequence of;
  int sequence;
  int kv_head, row_tile;
  int begin, end;             // tiles
  int first_part, last_part;  // the blocks that share the item

  __device__ bool whole() const { return first_part == last_part; }
};

// The segments of this block in turn; the same in every thread. Called by whole warps.
class DecodeWalk {
 public:
  __device__ explicit DecodeWalk(const DecodeParams& params) : params_(params) {
    for (int s = 0; s < num_sequences(); s += 32) total_ += __reduce_add_sync(~0u, units_of(s + lane()));
    blocks_ = min(static_cast<int>(gridDim.x), total_);
    const auto block = static_cast<std::int64_t>(blockIdx.x);
    if (block >= blocks_) return;
    unit_ = static_cast<int>(block * total_ / blocks_);
    end_ = static_cast<int>((block + 1) * total_ / blocks_);
    find();
  }

  __device__ bool done() const { return unit_ >= end_; }

  __device__ DecodeSegment next() {
    if (unit_ >= sequence_begin_ + of_.units()) {
      do {
        sequence_begin_ += of_.units();
        of_ = DecodeSequence(params_, ++sequence_);
      } while (of_.units() == 0);
    }
    const int item = (unit_ - sequence_begin_) / of_.tiles, tile = (unit_ - sequence_begin_) % of_.tiles;
    const int heads = params_.attention.kv.num_kv_heads;
    const int count = min(end_ - unit_, of_.tiles - tile);
    const DecodeSegment segment{.of = of_,
                                .sequence = sequence_,
                                .kv_head = item % heads,
                                .row_tile = item / heads,
                                .begin = of_.first_tile + tile,
                                .end = of_.first_tile + tile + count,
                                .first_part = block_of(unit_ - tile),
                                .last_part = block_of(unit_ - tile + of_.tiles - 1)};
    unit_ += count;
    return segment;
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ int num_sequences() const { return params_.attention.sequences.num_sequences; }
  __device__ int units_of(int sequence) const { return DecodeSequence(params_, sequence).units(); }

  // The block whose share [b * total / blocks, (b + 1) * total / blocks) holds the unit.
  __device__ int block_of(int unit) const {
    return static_cast<int>((static_cast<std::int64_t>(unit + 1) * blocks_ - 1) / total_);
  }

  // The sequence that holds unit_.
  __device__ void find() {
    for (int s = 0; s < num_sequences(); s += 32) {
      const int units = units_of(s + lane());
      int up_to = units;
      for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(~0u, up_to, step);
        if (lane() >= step) up_to += before;
      }
      const unsigned beyond = __ballot_sync(~0u, sequence_begin_ + up_to > unit_);
      if (beyond != 0) {
        const int first = __ffs(static_cast<int>(beyond)) - 1;
        sequence_ = s + first;
        sequence_begin_ += __shfl_sync(~0u, up_to - units, first);
        of_ = DecodeSequence(params_, sequence_);
        return;
      }
      sequence_begin_ += __shfl_sync(~0u, up_to, 31);
    }
  }

  const DecodeParams& params_;
  DecodeSequence of_;
  int total_ = 0, blocks_ = 0;
  int unit_ = 0, end_ = 0;
  int sequence_ = 0, sequence_begin_ = 0;
};

}  // namespace heddle::sm90
