// The work of one block of decode_head_body.cuh on the CPU, in plain loops and in the order of the formulas: the twin of
// the kernel. A thread of its own for each block.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fused/decode_block_cpu.h"
#include "fused/decode_head_plan.h"

namespace heddle {

// Norm and QKV projection are those of SplitToken; DecodeBlockShape says which rows a block has.
template <class T, class Team>
class DecodeHeadCpuWork : public DecodeBlockCpuWork<T, Team> {
 public:
  using Base = DecodeBlockCpuWork<T, Team>;
  using Base::exp2, Base::rounded, Base::to_float;

  DecodeHeadCpuWork(const DecodeBlockParams& params, const DecodeBlockShape& shape, const Team& team, int unit)
      : Base(params, shape, team, unit), slice_(shape.head_slice()) {}

  // The keys of a token: the last one is new.
  DecodeRange keys_of(int token) const {
    const int newest = params_.sequences.context_len[token] - 1;
    return {params_.window > 0 ? std::max(0, newest + 1 - params_.window) : 0, newest + 1};
  }

  // qkv [tokens][block_rows]; heads [tokens][most_heads + 2][head_slice]: queries, the key, the value, rounded.
  void finish_slices(const float* qkv, float* heads) const {
    const int count = heads_.count(), rank = team_.block();
    for (int t = 0; t < shape_.tokens; ++t)
      for (int head = 0; head < count + 2; ++head) {
        float* const to = head_of(heads, t, head);
        std::copy_n(qkv + t * shape_.block_rows() + head * slice_, slice_, to);
        for (int i = 0; head <= count && i < slice_ / 2; ++i)
          this->rotate_pair(to[i], to[i + slice_ / 2], shape_.key_element(rank, i), params_.positions[t]);
        for (int i = 0; i < slice_; ++i) to[i] = to_float(rounded(to[i]));
        if (head >= count && shape_.writes_cache(unit_)) write_cache(to, t, head == count);
      }
  }

  void begin_token(int, const float*) {
    softmax_.assign(static_cast<std::size_t>(heads_.count()), {});
    values_.assign(static_cast<std::size_t>(heads_.count() * slice_), 0.0f);
  }

  // Adds up what this block's slices have of the scores of a tile of keys: scores [heads][score_stride].
  void score(int token, DecodeRange tile, const float* heads, float* scores) const {
    const int stride = DecodeHeadPlan::score_stride(tile.count()), newest = keys_of(token).end - 1;
    for (int head = 0; head < heads_.count(); ++head) {
      const float* const query = head_of(heads, token, head);
      for (int i = 0; i < stride; ++i) {
        float score = 0;
        const int position = tile.begin + i;
        for (int d = 0; position < tile.end && d < slice_; ++d)
          score += query[d] *
                   (position == newest
                        ? head_of(heads, token, heads_.count())[d]
                        : to_float(this->slot(params_.kv.keys, token, position)[shape_.key_element(team_.block(), d)]));
        scores[head * stride + i] = score * params_.scale * 1.44269504f;
      }
    }
  }

  // The values of a tile of keys, whose scores are complete.
  void add_values(int token, DecodeRange tile, const float* heads, const float* scores) {
    const int stride = DecodeHeadPlan::score_stride(tile.count()), newest = keys_of(token).end - 1;
    for (int head = 0; head < heads_.count(); ++head) {
      Softmax& softmax = softmax_[static_cast<std::size_t>(head)];
      float* const values = &values_[static_cast<std::size_t>(head * slice_)];
      const float* const of_head = scores + head * stride;
      const float before = softmax.largest;
      softmax.largest = std::max(before, *std::max_element(of_head, of_head + tile.count()));
      const float correction = exp2(before - softmax.largest);
      softmax.sum *= correction;
      for (int d = 0; d < slice_; ++d) values[d] *= correction;
      for (int position = tile.begin; position < tile.end; ++position) {
        const float weight = exp2(of_head[position - tile.begin] - softmax.largest);
        softmax.sum += weight;
        for (int d = 0; d < slice_; ++d)
          values[d] +=
              weight *
              (position == newest
                   ? head_of(heads, token, heads_.count() + 1)[d]
                   : to_float(this->slot(params_.kv.values, token, position)[shape_.value_element(team_.block(), d)]));
      }
    }
  }

  // attended [tokens][most_heads * head_slice].
  void end_token(int token, T* attended) const {
    for (int i = 0; i < heads_.count() * slice_; ++i)
      attended[token * shape_.most_heads() * slice_ + i] =
          rounded(values_[static_cast<std::size_t>(i)] / softmax_[static_cast<std::size_t>(i / slice_)].sum);
  }

  // What this block's slices have of some rows' outputs: outputs [tokens][rows].
  void project_out(const T* attended, DecodeRange rows, float* outputs) const {
    const int all = shape_.tokens * rows.count();
    std::fill_n(outputs, (all + 3) / 4 * 4, 0.0f);
    for (int at = 0; at < all; ++at) {
      const T* const weights = static_cast<const T*>(params_.output.row(rows.begin + at % rows.count()));
      for (int k = 0; k < heads_.count() * slice_; ++k)
        outputs[at] += to_float(weights[(heads_.begin + k / slice_) * shape_.head_dim +
                                        shape_.value_element(team_.block(), k % slice_)]) *
                       to_float(attended[at / rows.count() * shape_.most_heads() * slice_ + k]);
    }
  }

  float output_bias(int row) const {
    return unit_ == 0 && params_.output.bias != nullptr ? params_.output.bias[row] : 0;
  }

 private:
  using Base::heads_, Base::params_, Base::shape_, Base::team_, Base::unit_;

  struct Softmax {
    float largest = -std::numeric_limits<float>::infinity(), sum = 0;
  };

  template <class Float>
  Float* head_of(Float* heads, int token, int head) const {
    return heads + (token * (shape_.most_heads() + 2) + head) * slice_;
  }

  // The block's slice of the new key or value.
  void write_cache(const float* slice, int token, bool is_key) const {
    T* const to = this->slot(is_key ? params_.kv.keys : params_.kv.values, token, keys_of(token).end - 1);
    for (int i = 0; i < slice_; ++i)
      to[is_key ? shape_.key_element(team_.block(), i) : shape_.value_element(team_.block(), i)] = rounded(slice[i]);
  }

  int slice_;
  std::vector<Softmax> softmax_;  // of the unit's query heads
  std::vector<float> values_;     // [heads][head_slice], weighted
};

}  // namespace heddle
