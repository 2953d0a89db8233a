// Attention of one token over a KV cache whose tokens lie in rows of cores.
#include <algorithm>
#include <cmath>
#include <limits>

#include "wafer/programs/decode_region.h"

namespace heddle {

using mesh::Axis;
using mesh::Buffers;
using mesh::Reduction;
using mesh::Tile;
using mesh::ValueMesh;

Tile WaferDecodeRegion::attend(Tile q, const WaferKvCache& kv, int window) {
  const int places = mesh_.grid().columns, num_heads = weights_.shape.num_heads;
  const auto slots = static_cast<int>(rows_.fullest());
  const float scale = 1 / std::sqrt(static_cast<float>(weights_.shape.head_dim));
  const std::int64_t oldest = window > 0 ? std::max<std::int64_t>(0, rows_.size() - window) : 0;

  // Calls action(token, its slot in the score tiles) for the tokens of row i that the new token attends to.
  const auto for_tokens = [&](int i, auto action) {
    for (std::int64_t token = std::max(oldest, rows_.first(i)); token < rows_.first(i + 1); ++token)
      action(token, static_cast<int>(token - rows_.first(i)));
  };

  // Each core multiplies its part of a head; the cores of a head lie along x.
  const Tile scores = mesh_.allocate("scores", slots, num_heads, Buffers::two);
  mesh_.apply({.macs = 1.0 * slots * q.columns}, [&](ValueMesh& values, int i) {
    for_tokens(i, [&](std::int64_t token, int slot) {
      for (const auto& [query, key, head, begin, end] : pieces_) {
        const float *q0 = values.at(q, i, 0, query), *q1 = values.at(q, i, 0, query + 1);
        const float *k0 = kv.key(i, token) + key * kv.pitch(), *k1 = k0 + kv.pitch();
        float* score = values.at(scores, i, slot, head);
        for (int j = begin; j < end; ++j) score[j] += scale * (q0[j] * k0[j] + q1[j] * k1[j]);
      }
    });
  });
  mesh_.all_reduce(scores, Axis::x, Reduction::sum, all_reduce_);

  // Softmax over tokens, which lie along y. Its sum divides the attention output.
  const Tile highest = mesh_.allocate("highest score", 1, num_heads, Buffers::two);
  mesh_.apply({.values = 1.0 * slots * num_heads}, [&](ValueMesh& values, int i) {
    for (int head = 0; head < num_heads; ++head) {
      float* high = values.at(highest, i, 0, head);
      std::fill_n(high, places, -std::numeric_limits<float>::infinity());
      for_tokens(i, [&](std::int64_t, int slot) {
        const float* score = values.at(scores, i, slot, head);
        for (int j = 0; j < places; ++j) high[j] = std::max(high[j], score[j]);
      });
    }
  });
  mesh_.all_reduce(highest, Axis::y, Reduction::maximum, all_reduce_);
  const Tile sum = mesh_.allocate("sum of exponentials", 1, num_heads, Buffers::two);
  mesh_.apply({.values = 2.0 * slots * num_heads}, [&](ValueMesh& values, int i) {
    for (int head = 0; head < num_heads; ++head) {
      const float* high = values.at(highest, i, 0, head);
      float* total = values.at(sum, i, 0, head);
      for_tokens(i, [&](std::int64_t, int slot) {
        float* score = values.at(scores, i, slot, head);
        for (int j = 0; j < places; ++j) {
          score[j] = std::exp(score[j] - high[j]);
          total[j] += score[j];
        }
      });
    }
  });
  mesh_.all_reduce(sum, Axis::y, Reduction::sum, all_reduce_);

  const Tile attended = mesh_.allocate("attended", 1, q.columns, Buffers::two);
  mesh_.apply({.macs = 1.0 * slots * q.columns}, [&](ValueMesh& values, int i) {
    for_tokens(i, [&](std::int64_t token, int slot) {
      for (const auto& [query, key, head, begin, end] : pieces_) {
        const float* weight = values.at(scores, i, slot, head);
        const float *v0 = kv.value(i, token) + key * kv.pitch(), *v1 = v0 + kv.pitch();
        float *y0 = values.at(attended, i, 0, query), *y1 = values.at(attended, i, 0, query + 1);
        for (int j = begin; j < end; ++j) {
          y0[j] += weight[j] * v0[j];
          y1[j] += weight[j] * v1[j];
        }
      }
    });
  });
  mesh_.all_reduce(attended, Axis::y, Reduction::sum, all_reduce_);
  mesh_.apply({.values = 1.0 * q.columns}, [&](ValueMesh& values, int i) {
    for (const auto& [query, key, head, begin, end] : pieces_) {  // each column once
      const float* total = values.at(sum, i, 0, head);
      for (const int column : {query, query + 1}) {
        float* y = values.at(attended, i, 0, column);
        for (int j = begin; j < end; ++j) y[j] /= total[j];
      }
    }
  });
  for (const Tile tile : {scores, highest, sum}) mesh_.release(tile);
  return attended;
}

}  // namespace heddle
