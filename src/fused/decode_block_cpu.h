// The work of one block of decode_block_body.cuh on the CPU, in plain loops and in the order of the formulas: the twin of
// the kernel. A thread of its own for each block, or one thread for clusters of one block.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "fused/block_rows_cpu.h"
#include "fused/decode_block.h"

namespace heddle {

template <class T, class Team>
class DecodeBlockCpuWork : public BlockRowsCpu<T> {
 public:
  using BlockRowsCpu<T>::exp2, BlockRowsCpu<T>::rounded, BlockRowsCpu<T>::to_float;

  DecodeBlockCpuWork(const DecodeBlockParams& params, const DecodeBlockShape& shape, const Team& team, int unit)
      : params_(params), shape_(shape), team_(team), unit_(unit), heads_(shape.heads_of(unit)) {}

  void mark(DecodeBlockPhase) const {}

  void sum_squares(float* sums) const {
    const DecodeRange features = shape_.features_of(team_.block());
    for (int t = 0; t < shape_.tokens; ++t) {
      float sum = 0;
      for (int i = features.begin; i < features.end; ++i) {
        const float of = z(t, i);
        sum += of * of;
        if (unit_ == 0 && i / shape_.slice() == team_.block())
          this->template row<float>(params_.new_residual, t)[i] = of;
      }
      sums[t] = sum;
    }
  }

  // sums [parts][stride]; x [cluster][tokens][slice], of which it writes its features.
  void normalize(const float* sums, int parts, int stride, T* x) const {
    const DecodeRange features = shape_.features_of(team_.block());
    const int slice = shape_.slice();
    for (int t = 0; t < shape_.tokens; ++t) {
      float sum = 0;
      for (int part = 0; part < parts; ++part) sum += sums[part * stride + t];
      const float factor = 1.0f / std::sqrt(sum / static_cast<float>(shape_.hidden) + params_.eps);
      for (int i = features.begin; i < features.end; ++i)
        x[(i / slice * shape_.tokens + t) * slice + i % slice] = rounded(z(t, i) * factor * params_.norm[i]);
    }
  }

  // x [cluster][tokens][slice]; out [tokens][block_rows].
  void project(const T* x, float* out) const {
    const DecodeRange rows = shape_.rows_of(unit_, team_.block());
    const int slice = shape_.slice();
    for (int row = rows.begin; row < rows.end; ++row) {
      const int of_weight = shape_.qkv_row(unit_, row);
      const auto* weights = static_cast<const T*>(params_.qkv.row(of_weight));
      for (int t = 0; t < shape_.tokens; ++t) {
        float sum = 0;
        for (int k = 0; k < shape_.hidden; ++k)
          sum += to_float(weights[k]) * to_float(x[(k / slice * shape_.tokens + t) * slice + k % slice]);
        out[t * shape_.block_rows() + row - rows.begin] =
            sum + (params_.qkv.bias != nullptr ? params_.qkv.bias[of_weight] : 0);
      }
    }
  }

  // qkv [cluster][tokens][block_rows]; heads [tokens][most_heads + 2][head_dim]: queries, the key, the value, rounded.
  void finish_heads(const float* qkv, float* heads) const {
    const int dim = shape_.head_dim, rows = shape_.block_rows(), count = heads_.count();
    for (int t = 0; t < shape_.tokens; ++t)
      for (int head = 0; head < count + 2; ++head) {
        float* const to = heads + (t * (shape_.most_heads() + 2) + head) * dim;
        for (int d = 0; d < dim; ++d) {
          const int row = head * dim + d;
          to[d] = qkv[(row / rows * shape_.tokens + t) * rows + row % rows];
        }
        if (head <= count) {
          normalize_head(to, head < count ? params_.query_norm : params_.key_norm);
          rotate(to, params_.positions[t]);
        }
        for (int d = 0; d < dim; ++d) to[d] = to_float(rounded(to[d]));
        if (head >= count && team_.block() == 0 && shape_.writes_cache(unit_)) write_cache(to, t, head == count);
      }
  }

  // merge [tokens][most_heads][head_dim + kMergeWords].
  void attend(const float* heads, float* merge) const {
    for (int t = 0; t < shape_.tokens; ++t)
      for (int head = 0; head < shape_.most_heads(); ++head)
        attend(t, head, heads + t * (shape_.most_heads() + 2) * shape_.head_dim,
               merge + (t * shape_.most_heads() + head) * (shape_.head_dim + DecodeBlockMemory::kMergeWords));
  }

  // attended [tokens][most_heads * head_dim]; to [tokens][hidden], of which it writes this block's rows.
  void project_out(const T* attended, float* to) const {
    const DecodeRange rows = shape_.output_rows_of(team_.block());
    for (int row = rows.begin; row < rows.end; ++row) {
      const T* weights = static_cast<const T*>(params_.output.row(row)) + heads_.begin * shape_.head_dim;
      for (int t = 0; t < shape_.tokens; ++t) {
        float sum = unit_ == 0 && params_.output.bias != nullptr ? params_.output.bias[row] : 0;
        for (int k = 0; k < heads_.count() * shape_.head_dim; ++k)
          sum += to_float(weights[k]) * to_float(attended[t * shape_.most_heads() * shape_.head_dim + k]);
        to[t * shape_.hidden + row] = sum;
      }
    }
  }

 protected:
  // Pair i of a head.
  void rotate_pair(float& low, float& high, int i, int position) const {
    const double angle = static_cast<double>(static_cast<float>(position) * params_.inv_freq[i]);
    const float cosine = static_cast<float>(std::cos(angle)) * params_.rope_scale;
    const float sine = static_cast<float>(std::sin(angle)) * params_.rope_scale;
    const float low_before = low, high_before = high;
    low = low_before * cosine - high_before * sine;
    high = high_before * cosine + low_before * sine;
  }

  T* slot(void* half, int token, int position) const {
    const PagedKv& kv = params_.kv;
    const std::int32_t page = params_.sequences.pages(token)[position / kv.page_size];
    return static_cast<T*>(half) + kv.offset(page, shape_.kv_head(unit_), position % kv.page_size);
  }

  const DecodeBlockParams& params_;
  const DecodeBlockShape shape_;
  const Team& team_;
  int unit_;
  DecodeRange heads_;

 private:
  float z(int token, int feature) const {
    return BlockRowsCpu<T>::pending_sum(params_.residual, params_.deltas, params_.num_deltas, token, feature);
  }

  void normalize_head(float* head, const float* norm) const {
    if (norm == nullptr) return;
    float sum = 0;
    for (int d = 0; d < shape_.head_dim; ++d) sum += head[d] * head[d];
    const float factor = 1.0f / std::sqrt(sum / static_cast<float>(shape_.head_dim) + params_.eps);
    for (int d = 0; d < shape_.head_dim; ++d) head[d] = head[d] * factor * norm[d];
  }

  void rotate(float* head, int position) const {
    const int half = shape_.head_dim / 2;
    for (int i = 0; i < half; ++i) rotate_pair(head[i], head[i + half], i, position);
  }

  void write_cache(const float* head, int token, bool is_key) const {
    T* const to = slot(is_key ? params_.kv.keys : params_.kv.values, token, params_.sequences.context_len[token] - 1);
    for (int d = 0; d < shape_.head_dim; ++d) to[d] = rounded(head[d]);
  }

  void attend(int token, int head, const float* heads, float* out) const {
    const int dim = shape_.head_dim, newest = params_.sequences.context_len[token] - 1, count = heads_.count();
    float& largest = out[dim];
    float& sum = out[dim + 1];
    std::fill_n(out, dim + DecodeBlockMemory::kMergeWords, 0.0f);
    if (head >= count) {
      sum = 1;
      return;
    }
    largest = -std::numeric_limits<float>::infinity();
    const float* const query = heads + head * dim;
    const float scale = params_.scale * 1.44269504f;
    const auto take = [&](const auto* key, const auto* value) {
      float score = 0;
      for (int d = 0; d < dim; ++d) score += query[d] * to_float(key[d]);
      score *= scale;
      const float before = largest;
      largest = std::fmax(largest, score);
      const float correction = exp2(before - largest), weight = exp2(score - largest);
      sum = sum * correction + weight;
      for (int d = 0; d < dim; ++d) out[d] = out[d] * correction + weight * to_float(value[d]);
    };
    const int first = params_.window > 0 ? std::max(0, newest + 1 - params_.window) : 0;
    const DecodeRange keys = shape_.keys_of(first, newest - first, team_.block());
    for (int position = keys.begin; position < keys.end; ++position)
      take(slot(params_.kv.keys, token, position), slot(params_.kv.values, token, position));
    if (team_.block() == team_.blocks() - 1) take(heads + count * dim, heads + (count + 1) * dim);
  }
};

}  // namespace heddle
