#include "kernels/attention/latent_kv_write.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/latent_kv_write_sm90.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

constexpr int kMostRopeDim = 256;

struct Turns {
  std::array<float, kMostRopeDim / 2> cosine, sine;
};

void turn_pairs(const float* from, float* to, int num_pairs, const Turns& turns) {
  for (int i = 0; i < num_pairs; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const float a = from[2 * i], b = from[2 * i + 1];
    to[2 * i] = a * turns.cosine[at] - b * turns.sine[at];
    to[2 * i + 1] = b * turns.cosine[at] + a * turns.sine[at];
  }
}

// Rotates the queries of a token. Writes its latent into the cache, if that is where it belongs.
void write_token(const LatentKvWriteParams& params, std::int64_t token, int sequence, int in_sequence) {
  const PagedKv& kv = params.kv;
  const int rope_dim = params.rope_dim, num_pairs = rope_dim / 2, latent_dim = kv.head_dim - rope_dim;
  Turns turns;
  const auto position = static_cast<float>(params.positions[token]);
  for (int i = 0; i < num_pairs; ++i) {
    const double angle = position * params.inv_freq[i];  // the multiplication rounds it to float32, as in rope()
    turns.cosine[static_cast<std::size_t>(i)] = static_cast<float>(std::cos(angle)) * params.scale;
    turns.sine[static_cast<std::size_t>(i)] = static_cast<float>(std::sin(angle)) * params.scale;
  }
  const std::int64_t q_width = params.q.columns / params.num_heads;
  const float* q = static_cast<const float*>(params.q.data) + token * params.q.row_stride + q_width - rope_dim;
  float* query =
      static_cast<float*>(params.query.data) + token * params.query.row_stride + params.query_width() - rope_dim;
  for (int head = 0; head < params.num_heads; ++head, q += q_width, query += params.query_width())
    turn_pairs(q, query, num_pairs, turns);
  if (!kv.has(in_sequence)) return;

  const int place = kv.place(in_sequence);
  const std::int32_t page = params.sequences.pages(sequence)[place / kv.page_size];
  const float* latent = static_cast<const float*>(params.latent.data) + token * params.latent.row_stride;
  auto* row = static_cast<std::byte*>(kv.keys) + kv.offset(page, 0, place % kv.page_size) * size_of(kv.dtype);
  convert(latent, DType::float32, row, kv.dtype, static_cast<std::size_t>(latent_dim));
  std::array<float, kMostRopeDim> key;
  turn_pairs(latent + latent_dim, key.data(), num_pairs, turns);
  convert(key.data(), DType::float32, row + static_cast<std::size_t>(latent_dim) * size_of(kv.dtype), kv.dtype,
          static_cast<std::size_t>(rope_dim));
}

void latent_kv_write_cpu(const LatentKvWriteParams& params, ThreadPool& pool) {
  const PagedSequences& sequences = params.sequences;
  const std::int32_t* starts_end = sequences.query_start + sequences.num_sequences + 1;
  const std::int64_t work = 4 * (params.query.columns + params.kv.head_dim);
  pool.parallel_for(params.q.rows, rows_per_piece(work), [&](std::int64_t begin, std::int64_t end) {
    // The sequence of row `begin`: the last one that starts there or before; empty sequences are skipped.
    auto sequence =
        static_cast<int>(std::upper_bound(sequences.query_start, starts_end, begin) - sequences.query_start) - 1;
    for (std::int64_t token = begin; token < end; ++token) {
      while (token >= sequences.query_start[sequence + 1]) ++sequence;
      const auto from_end = static_cast<int>(sequences.query_start[sequence + 1] - token);
      write_token(params, token, sequence, sequences.context_len[sequence] - from_end);
    }
  });
}

}  // namespace

void latent_kv_write(const LatentKvWriteParams& params, const Lane& lane) {
  const PagedKv& kv = params.kv;
  const Tensor &q = params.q, &latent = params.latent, &query = params.query;
  require_paged_kv(kv, params.sequences, q.rows, "latent_kv_write");
  require(kv.num_kv_heads == 1, "latent_kv_write: the cache has {} heads, expected one latent", kv.num_kv_heads);
  require(params.rope_dim > 0 && params.rope_dim % 2 == 0 && params.rope_dim <= kMostRopeDim &&
              params.rope_dim < kv.head_dim,
          "latent_kv_write: rope_dim is {}, expected an even number up to {} and below the cache's {}", params.rope_dim,
          kMostRopeDim, kv.head_dim);
  require(params.num_heads >= 1 && q.columns % params.num_heads == 0 && q.columns / params.num_heads >= params.rope_dim,
          "latent_kv_write: q has {} columns for {} heads with {} rotated elements", q.columns, params.num_heads,
          params.rope_dim);
  const ActivationDTypes dtypes = activations_on(lane.stream, ActivationDTypes::float32);
  require_activation(q, q.rows, q.columns, "latent_kv_write", "q", dtypes);
  require_activation(latent, q.rows, kv.head_dim, "latent_kv_write", "latent", dtypes);
  const bool in_place = query.data == q.data && query.row_stride == q.row_stride;
  require_activation(query, q.rows, in_place ? q.columns : std::int64_t{params.num_heads} * kv.head_dim,
                     "latent_kv_write", "query", dtypes);
  require(q.dtype == latent.dtype && q.dtype == query.dtype,
          "latent_kv_write: q is {}, latent {}, query {}: expected the same", name_of(q.dtype), name_of(latent.dtype),
          name_of(query.dtype));
  require_array(params.positions, q.rows, "latent_kv_write", "positions");
  require_array(params.inv_freq, q.rows, "latent_kv_write", "inv_freq");
  if (q.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return latent_kv_write_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { latent_kv_write_cpu(params, pool); });
}

}  // namespace heddle
