// The work of one block of latent_block_body.cuh and latent_head_body.cuh on the CPU, in plain loops and in the order of
// the formulas. A thread of its own for each block, or one thread for clusters of one block.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "fused/block_rows_cpu.h"
#include "fused/latent_block/latent_block.h"

namespace heddle {

template <class T, class Team>
class LatentBlockCpuWork : public BlockRowsCpu<T> {
 public:
  static constexpr int kTileVectors = 0;  // rows of the cache are read where they are

  using Base = BlockRowsCpu<T>;
  using Base::exp2, Base::rounded, Base::to_float;

  LatentBlockCpuWork(const LatentBlockParams& params, const LatentBlockShape& shape, const Team& team, int unit)
      : params_(params), shape_(shape), team_(team), unit_(unit), heads_(shape.heads_of(unit)) {}

  int context_len(int token) const { return params_.sequences.context_len[token]; }

  // x [tokens][hidden]; and this block's part of the new residual.
  void normalize(T* x) const {
    const DecodeRange kept = shape_.features_of(unit_, team_.block());
    for (int t = 0; t < shape_.tokens; ++t) {
      float sum = 0;
      for (int i = 0; i < shape_.hidden; ++i) {
        const float of = z(t, i);
        sum += of * of;
        if (i >= kept.begin && i < kept.end) Base::template row<float>(params_.new_residual, t)[i] = of;
      }
      const float factor = 1.0f / std::sqrt(sum / static_cast<float>(shape_.hidden) + params_.eps);
      for (int i = 0; i < shape_.hidden; ++i) x[t * shape_.hidden + i] = rounded(z(t, i) * factor * params_.norm[i]);
    }
  }

  // The block's rows of the down projection: queries [tokens][block_query_rows], and put_latent(token, row, value).
  template <class Put>
  void project(const T* x, float* queries, const Put& put_latent) const {
    const DecodeRange rows = shape_.query_rows_of(unit_, team_.block());
    for (int row = rows.begin; row < rows.end; ++row)
      for (int t = 0; t < shape_.tokens; ++t)
        queries[t * shape_.block_query_rows() + row - rows.begin] =
            dot(params_.down, shape_.down_row_of_query(unit_, row), x + t * shape_.hidden);
    const DecodeRange latents = shape_.latent_rows_of(unit_, team_.block());
    for (int row = latents.begin; row < latents.end; ++row)
      for (int t = 0; t < shape_.tokens; ++t)
        put_latent(t, row, dot(params_.down, shape_.down_row_of_latent(row), x + t * shape_.hidden));
  }

  // gathered [cluster][tokens][block_query_rows]; queries [tokens][most_heads][query_dim].
  void finish_queries(const float* gathered, T* queries) const {
    const int dim = shape_.query_dim(), nope = shape_.nope_dim, rows = shape_.block_query_rows();
    for (int t = 0; t < shape_.tokens; ++t)
      for (int head = 0; head < heads_.count(); ++head) {
        const auto at = [&](int d) {
          const int row = head * dim + d;
          return gathered[(row / rows * shape_.tokens + t) * rows + row % rows];
        };
        T* const to = queries + (t * shape_.most_heads() + head) * dim;
        for (int d = 0; d < nope; ++d) to[d] = rounded(at(d));
        rotate(
            params_.positions[t], [&](int i) { return at(nope + i); },
            [&](int i, float value) { to[nope + i] = rounded(value); });
      }
  }

  // put(token, head of the unit, element, value), of this block's elements.
  template <class Put>
  void absorb(const T* queries, const Put& put) const {
    const DecodeRange elements = shape_.elements_of(team_.block());
    for (int t = 0; t < shape_.tokens; ++t)
      for (int head = 0; head < heads_.count(); ++head)
        for (int element = elements.begin; element < elements.end; ++element)
          put(t, head, element,
              rounded(dot(params_.to_latents, (heads_.begin + head) * shape_.latent_dim + element,
                          queries + (t * shape_.most_heads() + head) * shape_.query_dim())));
  }

  // put(token, head of the unit, i, value): the rotated elements of queries.
  template <class Put>
  void copy_rotated(const T* queries, const Put& put) const {
    for (int t = 0; t < shape_.tokens; ++t)
      for (int head = 0; head < heads_.count(); ++head)
        for (int i = 0; i < shape_.rope_dim; ++i)
          put(t, head, i, queries[(t * shape_.most_heads() + head) * shape_.query_dim() + shape_.nope_dim + i]);
  }

  // The row that a token adds to the cache, of down(row) as the projection made it.
  template <class Down>
  void finish_latent(int token, const Down& down, T* newest, bool writes_cache) const {
    const int latent = shape_.latent_dim;
    float sum = 0;
    for (int i = 0; i < latent; ++i) sum += down(i) * down(i);
    const float factor = 1.0f / std::sqrt(sum / static_cast<float>(latent) + params_.latent_eps);
    for (int i = 0; i < latent; ++i) newest[i] = rounded(down(i) * factor * params_.latent_norm[i]);
    rotate(
        params_.positions[token], [&](int i) { return down(latent + i); },
        [&](int i, float value) { newest[latent + i] = rounded(value); });
    if (!writes_cache) return;
    T* const to = slot(token, context_len(token) - 1);
    for (int i = 0; i < shape_.cached_dim(); ++i) to[i] = newest[i];
  }

  // from [heads][cached_dim] to [heads][absorbed_stride].
  void load_queries(const T* from, T* to) const {
    for (int head = 0; head < shape_.heads; ++head)
      for (int i = 0; i < shape_.cached_dim(); ++i)
        to[head * shape_.absorbed_stride() + i] = from[head * shape_.cached_dim() + i];
  }

  // Queries of so many heads [heads][absorbed_stride] over the keys at these positions, of which the last is `newest` unless that
  // is null. out [heads][record].
  void attend(int token, DecodeRange keys, const T* newest, const T* queries, int heads, float* out) const {
    const int cached = shape_.cached_dim(), latent = shape_.latent_dim, record = shape_.record();
    const float scale = params_.scale * 1.44269504f;
    for (int i = 0; i < heads * record; ++i) out[i] = 0;
    for (int head = 0; head < heads; ++head) out[head * record + latent] = -std::numeric_limits<float>::infinity();
    for (int position = keys.begin; position < keys.end; ++position) {
      const T* const key = newest != nullptr && position + 1 == keys.end ? newest : slot(token, position);
      for (int head = 0; head < heads; ++head) {
        float* const to = out + head * record;
        float score = 0;
        for (int d = 0; d < cached; ++d)
          score += to_float(queries[head * shape_.absorbed_stride() + d]) * to_float(key[d]);
        score *= scale;
        const float before = to[latent], largest = std::fmax(before, score);
        const float correction = exp2(before - largest), weight = exp2(score - largest);
        to[latent] = largest;
        to[latent + 1] = to[latent + 1] * correction + weight;
        for (int d = 0; d < latent; ++d) to[d] = to[d] * correction + weight * to_float(key[d]);
      }
    }
  }

  // attended [tokens][most_heads][latent_dim]; out [tokens][block_value_rows].
  void values(const T* attended, T* out) const {
    const DecodeRange rows = shape_.value_rows_of(unit_, team_.block());
    for (int row = rows.begin; row < rows.end; ++row)
      for (int t = 0; t < shape_.tokens; ++t)
        out[t * shape_.block_value_rows() + row - rows.begin] =
            rounded(dot(params_.from_latents, heads_.begin * shape_.value_dim + row,
                        attended + (t * shape_.most_heads() + row / shape_.value_dim) * shape_.latent_dim));
  }

  // Of one head, over this block's elements of the latent: attended [tokens][latent_dim], out [tokens][value_dim].
  void partial_values(const T* attended, float* out) const {
    const DecodeRange elements = shape_.elements_of(team_.block());
    for (int row = 0; row < shape_.value_dim; ++row) {
      const auto* weights = static_cast<const T*>(params_.from_latents.row(heads_.begin * shape_.value_dim + row));
      for (int t = 0; t < shape_.tokens; ++t) {
        float sum = 0;
        for (int k = elements.begin; k < elements.end; ++k)
          sum += to_float(weights[k]) * to_float(attended[t * shape_.latent_dim + k]);
        out[t * shape_.value_dim + row] = sum;
      }
    }
  }

  // values [parts][tokens][part_rows] of the unit's heads; to [tokens][hidden], of which it writes this block's rows.
  void project_out(const T* values, int part_rows, float* to) const {
    const DecodeRange rows = shape_.output_rows_of(team_.block());
    for (int row = rows.begin; row < rows.end; ++row) {
      const T* weights = static_cast<const T*>(params_.output.row(row)) + heads_.begin * shape_.value_dim;
      for (int t = 0; t < shape_.tokens; ++t) {
        float sum = 0;
        for (int k = 0; k < heads_.count() * shape_.value_dim; ++k)
          sum +=
              to_float(weights[k]) * to_float(values[(k / part_rows * shape_.tokens + t) * part_rows + k % part_rows]);
        to[t * shape_.hidden + row] = sum;
      }
    }
  }

 private:
  float z(int token, int feature) const {
    return Base::pending_sum(params_.residual, params_.deltas, params_.num_deltas, token, feature);
  }

  static float dot(const Weight& weight, int row, const T* x) {
    const auto* weights = static_cast<const T*>(weight.row(row));
    float sum = 0;
    for (std::int64_t k = 0; k < weight.in_features; ++k) sum += to_float(weights[k]) * to_float(x[k]);
    return sum;
  }

  // Pairs of neighbours, as latent_kv_write() turns them.
  template <class Get, class Put>
  void rotate(int position, const Get& get, const Put& put) const {
    for (int i = 0; i < shape_.rope_dim / 2; ++i) {
      const double angle = static_cast<double>(static_cast<float>(position) * params_.inv_freq[i]);
      const float cosine = static_cast<float>(std::cos(angle)) * params_.rope_scale;
      const float sine = static_cast<float>(std::sin(angle)) * params_.rope_scale;
      const float a = get(2 * i), b = get(2 * i + 1);
      put(2 * i, a * cosine - b * sine);
      put(2 * i + 1, b * cosine + a * sine);
    }
  }

  T* slot(int token, int position) const {
    const PagedKv& kv = params_.kv;
    const std::int32_t page = params_.sequences.pages(token)[position / kv.page_size];
    return static_cast<T*>(kv.keys) + kv.offset(page, 0, position % kv.page_size);
  }

  const LatentBlockParams& params_;
  const LatentBlockShape shape_;
  const Team& team_;
  int unit_;
  DecodeRange heads_;
};

}  // namespace heddle
