// Where the pieces of piece_attention() lie, as plain data. A plan makes a layout once; many calls use it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/device.h"
#include "base/dtype.h"

namespace heddle {

// The distances in elements between neighbours of a piece [batch, num_tokens, heads, head_dim]. The elements of a head
// are contiguous.
struct PieceStrides {
  std::int64_t batch = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
};

// The strides of a head-major piece, [batch, heads, num_tokens, head_dim].
constexpr PieceStrides head_major(int num_heads, int num_tokens, int head_dim) {
  const std::int64_t head = std::int64_t{num_tokens} * head_dim;
  return {.batch = num_heads * head, .token = head_dim, .head = head};
}

// The strides of a token-major piece, [batch, num_tokens, heads, head_dim].
constexpr PieceStrides token_major(int num_heads, int num_tokens, int head_dim) {
  const std::int64_t token = std::int64_t{num_heads} * head_dim;
  return {.batch = num_tokens * token, .token = token, .head = head_dim};
}

// Consecutive tokens that ask. Of the state, l and m are [batch, num_heads, num_tokens], o is that by head_dim, all
// float32 and contiguous. On a GPU the elements of o are in an order of the kernel's own, so calls of one state have the same
// query piece.
struct QueryPiece {
  const void* q = nullptr;
  PieceStrides q_strides;
  void* y = nullptr;  // the output of the call that finalises; null if no call of this layout does
  PieceStrides y_strides;
  float* o = nullptr;  // O', not normalised
  float* l = nullptr;  // sums of exp(score - m)
  // The largest score so far, after the scale. On a GPU it is times log2(e), and may lie up to 8 below the largest: l and o
  // are relative to what it is. So calls of one state are all on one device.
  float* m = nullptr;
  int num_tokens = 0;
  int first_position = 0;  // in the sequence; read by causal attention
};

// Consecutive tokens that are asked. Keys and values have the same strides.
struct KeyValuePiece {
  const void* k = nullptr;
  const void* v = nullptr;
  PieceStrides strides;
  int num_tokens = 0;
  int first_position = 0;
};

struct PieceShape {
  int batch = 1;
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads; head h reads KV head h / (num_heads / num_kv_heads)
  int head_dim = 0;
  DType dtype = DType::float32;  // of q, k, v and y; on a GPU bfloat16 or float16
};

// Some consecutive tokens of one query piece.
struct PieceTile {
  int piece = 0;
  int first_token = 0;
  int num_tokens = 0;
};

class PieceLayout {
 public:
  PieceLayout() = default;

  // Throws InvalidArgument unless head_dim is 1 to 256, sizes are positive (a piece may have no tokens), the dtype is
  // one of those above, and no q, k, v, o, l or m of a piece with tokens is null. On a GPU head_dim is 32, 64 or 128, rows
  // of q, k, v, y and o are aligned to 16 bytes, and the constructor copies a table to the device and waits for that.
  PieceLayout(const PieceShape& shape, std::vector<QueryPiece> queries, std::vector<KeyValuePiece> keys_values,
              Device device = {});

  const PieceShape& shape() const { return shape_; }
  const std::vector<QueryPiece>& queries() const { return queries_; }
  const std::vector<KeyValuePiece>& keys_values() const { return keys_values_; }

  // Tiles of one head and one member of the batch. A tile lies in one piece.
  std::int64_t num_tiles() const { return first_tiles_.empty() ? 0 : first_tiles_.back(); }
  // By a binary search of the piece (Algorithm 2, line 7). Precondition: 0 <= tile < num_tiles().
  PieceTile tile(std::int64_t tile) const;

  Device device() const { return device_; }
  // What the GPU's kernel reads of the layout, and counts in (piece_attention_sm90.h); null on the CPU. Copies of a layout
  // share it.
  std::byte* table() const { return table_ == nullptr ? nullptr : table_->data(); }

  // Multiplications and additions of a call that is not causal: 4 for each query, key, head and element.
  double flops() const;

 private:
  void make_table();

  PieceShape shape_;
  std::vector<QueryPiece> queries_;
  std::vector<KeyValuePiece> keys_values_;
  Device device_;
  std::shared_ptr<Buffer> table_;          // copies share it
  std::vector<std::int64_t> first_tiles_;  // by piece, then the number of all: cQO of Algorithm 2
};

}  // namespace heddle
