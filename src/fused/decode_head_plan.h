// Which block of which cluster computes what in decode_block.h by ClusterFusion's SplitHead (Alg. 5): a block has a slice
// of each head of its unit (DecodeBlockShape::head_slice), from the QKV projection to the output projection. So it reads
// the slice of every key and value, and of every row of Wo the columns of its slices. What it has are summands: of all
// scores and of all outputs, which the cluster sums by ClusterReduce, some at a time.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "fused/decode_block_plan.h"
#include "schedule/tree.h"

namespace heddle {

struct DecodeHeadPlan {
  DecodeBlockShape shape;

  // Rows of Wo that warps of a kernel share evenly.
  static constexpr int kRows = 64;

  // Keys whose scores are summed at a time, and where the scores of the next query head begin.
  HEDDLE_HOST_DEVICE constexpr int tile_keys() const { return shape.mapping.exchanged / shape.most_heads() / 4 * 4; }
  HEDDLE_HOST_DEVICE static constexpr int score_stride(int keys) { return (keys + 3) / 4 * 4; }
  HEDDLE_HOST_DEVICE constexpr int score_vectors(int unit, int keys) const {
    return shape.heads_of(unit).count() * score_stride(keys) / 4;
  }

  // Rows of Wo whose outputs are summed at a time, [tokens][rows].
  HEDDLE_HOST_DEVICE constexpr int tile_rows() const { return shape.mapping.exchanged / shape.tokens / kRows * kRows; }
  HEDDLE_HOST_DEVICE constexpr int output_vectors(int rows) const { return (shape.tokens * rows + 3) / 4; }

  // Part `index` of `all` in parts of `each`, the last of which may be smaller.
  HEDDLE_HOST_DEVICE static constexpr DecodeRange tile_of(DecodeRange all, int index, int each) {
    const int begin = all.begin + index * each, end = begin + each;
    return {begin, end < all.end ? end : all.end};
  }
};

// Where things lie in a block's shared memory, in vectors of 16 bytes. Nothing shares a place: other blocks may be a step
// ahead and push into the slots.
struct DecodeHeadMemory {
  int sums;                      // [tokens], float32
  int x;                         // all features of all tokens, as the work lays them out
  int qkv;                       // [tokens][block_rows], float32
  int heads;                     // [tokens][most_heads + 2][head_slice], float32
  int attended;                  // [tokens][most_heads * head_slice]
  int reduced, reduced_vectors;  // [3]: scores [heads][score_stride] or outputs [tokens][rows], and two slots; float32
  int work;                      // the kernel's own
  int end;

  HEDDLE_HOST_DEVICE constexpr DecodeHeadMemory(const DecodeBlockShape& shape, int element_bytes, int work_vectors = 0)
      : sums(0),
        x(vectors(4 * shape.tokens)),
        qkv(x + vectors(shape.tokens * shape.hidden * element_bytes)),
        heads(qkv + vectors(4 * shape.tokens * shape.block_rows())),
        attended(heads + vectors(4 * shape.tokens * (shape.most_heads() + 2) * shape.head_slice())),
        reduced(attended + vectors(shape.tokens * shape.most_heads() * shape.head_slice() * element_bytes)),
        reduced_vectors(vectors(4 * shape.mapping.exchanged)),
        work(reduced + 3 * reduced_vectors),
        end(work + work_vectors) {}

  HEDDLE_HOST_DEVICE static constexpr int vectors(int bytes) { return (bytes + 15) / 16; }
};

// Bytes through distributed shared memory in one cluster: of the scores of one token's keys, and of all outputs.
constexpr std::int64_t head_score_traffic_bytes(const DecodeHeadPlan& plan, int unit, int keys) {
  std::int64_t bytes = 0;
  for (int first = 0; first < keys; first += plan.tile_keys()) {
    const int here = DecodeHeadPlan::tile_of({first, keys}, 0, plan.tile_keys()).count();
    bytes += schedule::cluster_reduce_traffic_bytes(16 * plan.score_vectors(unit, here), plan.shape.mapping.cluster);
  }
  return bytes;
}
constexpr std::int64_t head_output_traffic_bytes(const DecodeHeadPlan& plan) {
  std::int64_t bytes = 0;
  for (int first = 0; first < plan.shape.hidden; first += plan.tile_rows()) {
    const int here = DecodeHeadPlan::tile_of({first, plan.shape.hidden}, 0, plan.tile_rows()).count();
    bytes += schedule::cluster_reduce_traffic_bytes(16 * plan.output_vectors(here), plan.shape.mapping.cluster);
  }
  return bytes;
}

// ClusterFusion's appendix B.2, of one head's cluster and one token, in float32: Reduce(S) + Reduce(D) for SplitHead;
// Reduce(H) + Gather(3h) for SplitToken, which leaves out the softmax's maxima and sums.
constexpr std::int64_t paper_split_head_traffic_bytes(std::int64_t keys, std::int64_t hidden, int cluster) {
  return schedule::cluster_reduce_traffic_bytes(4 * keys, cluster) +
         schedule::cluster_reduce_traffic_bytes(4 * hidden, cluster);
}
constexpr std::int64_t paper_split_token_traffic_bytes(std::int64_t head_dim, int cluster) {
  return schedule::cluster_reduce_traffic_bytes(4 * head_dim, cluster) +
         schedule::cluster_gather_traffic_bytes(4 * 3 * head_dim / cluster, cluster);
}
static_assert(paper_split_token_traffic_bytes(128, 4) == 8704 &&
              paper_split_head_traffic_bytes(4096, 4096, 4) == 262144);

// Every row of Wqkv that belongs to a unit is one block's, and a block has both elements of each pair that RoPE rotates.
constexpr bool head_slices_are_complete(const DecodeBlockShape& shape, int unit) {
  const int each = shape.unit_rows(unit) / shape.mapping.cluster, half = shape.head_slice() / 2;
  for (int head = 0; head < shape.heads_of(unit).count() + 2; ++head)
    for (int d = 0; d < shape.head_dim; ++d) {
      int times = 0;
      for (int row = 0; row < shape.unit_rows(unit); ++row)
        times += shape.qkv_row(unit, row) == shape.qkv_head(unit, head) * shape.head_dim + d ? 1 : 0;
      if (times != 1) return false;
    }
  for (int rank = 0; rank < shape.mapping.cluster; ++rank)
    for (int i = 0; i < half; ++i)
      if (shape.qkv_row(unit, rank * each + half + i) - shape.qkv_row(unit, rank * each + i) != shape.head_dim / 2)
        return false;
  return true;
}
static_assert(head_slices_are_complete({1, 64, 4, 2, 16, 1, {.cluster = 4, .split = DecodeSplit::head}}, 1));
static_assert(head_slices_are_complete({1, 64, 3, 1, 16, 1, {.cluster = 2, .parts = 2, .split = DecodeSplit::head}},
                                       0));

}  // namespace heddle
