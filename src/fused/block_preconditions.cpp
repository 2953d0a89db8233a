#include "fused/block_preconditions.h"

#include "base/error.h"
#include "kernels/preconditions.h"

namespace heddle {

void require_block_rows(const BlockRows& rows, std::string_view op) {
  const std::int64_t tokens = rows.residual.rows, hidden = rows.residual.columns;
  require_activation(rows.residual, tokens, hidden, op, "residual");
  require_activation(rows.new_residual, tokens, hidden, op, "new_residual");
  require(rows.new_residual.data != rows.residual.data, "{}: new_residual overlaps residual", op);
  require(rows.num_deltas >= 0 && rows.num_deltas <= rows.most_deltas, "{}: num_deltas is {}, expected 0 to {}", op,
          rows.num_deltas, rows.most_deltas);
  if (rows.num_deltas == 0) return;
  const Tensor& deltas = rows.deltas;
  require(deltas.data != nullptr && deltas.rows == rows.num_deltas * tokens && deltas.columns == hidden,
          "{}: deltas are [{}, {}], expected [{}, {}]", op, deltas.rows, deltas.columns, rows.num_deltas * tokens,
          hidden);
  require(deltas.dtype == DType::float32 || deltas.dtype == rows.weights, "{}: deltas are {}, expected float32 or {}",
          op, name_of(deltas.dtype), name_of(rows.weights));
}

void require_decode_sequences(const PagedSequences& sequences, std::int64_t num_tokens, std::string_view op) {
  require(sequences.num_sequences == num_tokens && sequences.max_query_len <= 1,
          "{}: {} tokens of {} sequences with up to {} new ones each, expected one each", op, num_tokens,
          sequences.num_sequences, sequences.max_query_len);
}

}  // namespace heddle
