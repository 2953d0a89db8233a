#include "kernels/rows/embedding.h"

#include <algorithm>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"
#include "kernels/rows/embedding_sm90.h"

namespace heddle {
namespace {

void embedding_cpu(const EmbeddingParams& params, ThreadPool& pool) {
  const std::int64_t hidden = params.table.in_features;
  const std::int64_t vocab_size = params.vocab_size > 0 ? params.vocab_size : params.table.out_features;
  pool.parallel_for(params.y.rows, rows_per_piece(hidden), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int32_t id = params.tokens[token];
      const std::int64_t row = id - params.first_token;
      require(id >= 0 && id < vocab_size, "embedding: token {} has id {}, the table has {} rows", token, id,
              vocab_size);
      float* const y = static_cast<float*>(params.y.data) + token * params.y.row_stride;
      if (row >= 0 && row < params.table.out_features)
        convert(params.table.row(row), params.table.dtype, y, DType::float32, static_cast<std::size_t>(hidden));
      else
        std::fill_n(y, hidden, 0.0F);
    }
  });
}

}  // namespace

void embedding(const EmbeddingParams& params, const Lane& lane) {
  require_weight(params.table, "embedding");
  require_activation(params.y, params.y.rows, params.table.in_features, "embedding", "y",
                     activations_on(lane.stream, ActivationDTypes::float32));
  require_array(params.tokens, params.y.rows, "embedding", "tokens");
  require(params.first_token >= 0 &&
              (params.vocab_size == 0 ? params.first_token == 0
                                      : params.table.out_features <= params.vocab_size &&
                                            params.first_token <= params.vocab_size - params.table.out_features),
          "embedding: a table of {} rows from token {} on, of {} tokens", params.table.out_features, params.first_token,
          params.vocab_size);
  if (params.y.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return embedding_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { embedding_cpu(params, pool); });
}

}  // namespace heddle
