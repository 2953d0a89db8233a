#include "kernels/attention/rope.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/rope_sm90.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

constexpr int kPairs = 64;  // rotated at once: their cosines and sines lie on the stack and serve all heads of a token

struct Rotation {
  float cosine[kPairs];
  float sine[kPairs];
};

void rotate_heads(const Tensor& x, std::int64_t token, int head_dim, int first_pair, int num_pairs,
                  const Rotation& rotation) {
  float* row = static_cast<float*>(x.data) + token * x.row_stride;
  const int half = head_dim / 2;
  for (std::int64_t head_start = 0; head_start < x.columns; head_start += head_dim) {
    float* low = row + head_start + first_pair;
    float* high = low + half;
    for (int i = 0; i < num_pairs; ++i) {
      const float a = low[i], b = high[i];
      low[i] = a * rotation.cosine[i] - b * rotation.sine[i];
      high[i] = b * rotation.cosine[i] + a * rotation.sine[i];
    }
  }
}

void rope_cpu(const RopeParams& params, ThreadPool& pool) {
  const int half = params.head_dim / 2;
  const std::int64_t work = params.q.columns + params.k.columns + 32 * half;  // a cosine costs many multiplications
  pool.parallel_for(params.q.rows, rows_per_piece(4 * work), [&](std::int64_t begin, std::int64_t end) {
    Rotation rotation;
    for (std::int64_t token = begin; token < end; ++token) {
      const auto position = static_cast<float>(params.positions[token]);
      for (int first = 0; first < half; first += kPairs) {
        const int count = std::min(kPairs, half - first);
        for (int i = 0; i < count; ++i) {
          const double angle = position * params.inv_freq[first + i];  // the multiplication rounds it to float32
          rotation.cosine[i] = static_cast<float>(std::cos(angle)) * params.scale;
          rotation.sine[i] = static_cast<float>(std::sin(angle)) * params.scale;
        }
        rotate_heads(params.q, token, params.head_dim, first, count, rotation);
        rotate_heads(params.k, token, params.head_dim, first, count, rotation);
      }
    }
  });
}

}  // namespace

void rope(const RopeParams& params, const Lane& lane) {
  require(params.head_dim > 0 && params.head_dim % 2 == 0, "rope: head_dim is {}, expected an even number above 0",
          params.head_dim);
  require_activation(params.q, params.q.rows, params.q.columns, "rope", "q",
                     activations_on(lane.stream, ActivationDTypes::float32));
  require_activation(params.k, params.q.rows, params.k.columns, "rope", "k",
                     activations_on(lane.stream, ActivationDTypes::float32));
  require(params.q.columns % params.head_dim == 0 && params.k.columns % params.head_dim == 0,
          "rope: q has {} columns, k {}: not multiples of head_dim {}", params.q.columns, params.k.columns,
          params.head_dim);
  require(params.q.dtype == params.k.dtype, "rope: q is {}, k {}: expected the same", name_of(params.q.dtype),
          name_of(params.k.dtype));
  require_array(params.positions, params.q.rows, "rope", "positions");
  require_array(params.inv_freq, params.q.rows, "rope", "inv_freq");
  if (params.q.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return rope_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { rope_cpu(params, pool); });
}

}  // namespace heddle
