// Operands of piece_attention() on the host, whole and in pieces.
#pragma once

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "fused/piece_attention/attention_oracle.h"

namespace heddle {

struct PieceCase {
  int batch, num_heads, num_kv_heads, head_dim;
  std::vector<int> query_tokens, key_tokens;  // of each piece
  DType dtype = DType::float32;
  PieceMask mask = PieceMask::full;
  float query_scale = 1;
};

// The numbers of a case: whole tensors, whose pieces are token-major views of them.
struct PieceOperands : WholeAttention {
  PieceCase of;

  explicit PieceOperands(const PieceCase& piece_case) : of(piece_case) {
    batch = of.batch;
    num_heads = of.num_heads;
    num_kv_heads = of.num_kv_heads;
    head_dim = of.head_dim;
    num_queries = std::accumulate(of.query_tokens.begin(), of.query_tokens.end(), 0);
    num_keys = std::accumulate(of.key_tokens.begin(), of.key_tokens.end(), 0);
    scale = 1 / std::sqrt(static_cast<float>(head_dim));
    mask = of.mask;
    dtype = of.dtype;
    const std::size_t row = static_cast<std::size_t>(batch) * head_dim;
    q = normal_numbers(row * num_queries * num_heads, 1, dtype, of.query_scale);
    k = normal_numbers(row * num_keys * num_kv_heads, 2, dtype);
    v = normal_numbers(row * num_keys * num_kv_heads, 3, dtype);
  }
};

// The elements of a case in its dtype, and the state and output of its query pieces.
struct PieceMemory {
  std::vector<std::byte> q, k, v, y;
  std::vector<float> o, l, m;  // of all query pieces, one after the other
  std::vector<QueryPiece> queries;
  std::vector<KeyValuePiece> keys_values;

  explicit PieceMemory(const PieceOperands& operands) {
    const PieceCase& of = operands.of;
    q = in_dtype(operands.q, of.dtype);
    k = in_dtype(operands.k, of.dtype);
    v = in_dtype(operands.v, of.dtype);
    y.resize(q.size(), std::byte{0xff});
    const std::size_t rows = static_cast<std::size_t>(of.batch) * of.num_heads * operands.num_queries;
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();  // nothing reads the state of a fresh call
    o.assign(rows * of.head_dim, kNaN);
    l.assign(rows, kNaN);
    m.assign(rows, kNaN);
    const auto strides = [&](int heads, int tokens) { return token_major(heads, tokens, of.head_dim); };
    std::size_t first_row = 0;
    int position = 0;
    for (const int tokens : of.query_tokens) {
      const PieceStrides where = strides(of.num_heads, operands.num_queries);
      const std::size_t at = position * where.token * size_of(of.dtype);
      queries.push_back({q.data() + at, where, y.data() + at, where, o.data() + first_row * of.head_dim,
                         l.data() + first_row, m.data() + first_row, tokens, position});
      first_row += static_cast<std::size_t>(of.batch) * of.num_heads * tokens;
      position += tokens;
    }
    position = 0;
    for (const int tokens : of.key_tokens) {
      const PieceStrides where = strides(of.num_kv_heads, operands.num_keys);
      const std::size_t at = position * where.token * size_of(of.dtype);
      keys_values.push_back({k.data() + at, v.data() + at, where, tokens, position});
      position += tokens;
    }
  }

  static std::vector<std::byte> in_dtype(const std::vector<float>& values, DType dtype) {
    std::vector<std::byte> result(values.size() * size_of(dtype));
    convert(values.data(), DType::float32, result.data(), dtype, values.size());
    return result;
  }
  std::vector<float> output(DType dtype) const {
    std::vector<float> result(y.size() / size_of(dtype));
    convert(y.data(), dtype, result.data(), DType::float32, result.size());
    return result;
  }
  PieceLayout layout(const PieceCase& of) const { return {shape(of), queries, keys_values}; }
  static PieceShape shape(const PieceCase& of) {
    return {of.batch, of.num_heads, of.num_kv_heads, of.head_dim, of.dtype};
  }
};

}  // namespace heddle
