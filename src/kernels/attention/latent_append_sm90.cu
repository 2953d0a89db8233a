// The blocks of a token share the pairs of all heads and of the key, and the latent. A thread has one pair as a rule: sine and
// cosine in float64 take long.
#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/attention/kv_append_sm90.cuh"
#include "kernels/attention/latent_append_sm90.h"
#include "kernels/attention/rope_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kLatentThreads = 128;

__device__ void append_row(const LatentAppendParams& params, int token) {
  const PagedKv& kv = params.kv;
  const int pairs = params.rope_dim / 2, latent_dim = kv.head_dim - params.rope_dim;
  const std::int64_t q_width = params.q.columns / params.num_heads;
  const std::int64_t slot = slot_of(params.sequences, kv, token);
  const int first = static_cast<int>(blockIdx.y) * kLatentThreads + static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(gridDim.y) * kLatentThreads;  // of the token
  for (int i = first; i < (params.num_heads + 1) * pairs; i += threads) {
    const int head = i / pairs, pair = i % pairs;
    const bool is_key = head == params.num_heads;
    const Tensor& from = is_key ? params.latent : params.q;
    const std::int64_t at =
        token * from.row_stride + (is_key ? latent_dim : head * q_width + q_width - params.rope_dim) + 2 * pair;
    float a = load_element(from.data, at, from.dtype), b = load_element(from.data, at + 1, from.dtype);
    rotate_pair(rotation_of(params.positions[token], params.inv_freq[pair], params.scale), a, b);
    if (is_key) {
      store_element(kv.keys, slot + latent_dim + 2 * pair, kv.dtype, a);
      store_element(kv.keys, slot + latent_dim + 2 * pair + 1, kv.dtype, b);
    } else {
      const std::int64_t to =
          token * params.query.row_stride + (head + 1) * params.query_width() - params.rope_dim + 2 * pair;
      store_element(params.query.data, to, params.query.dtype, a);
      store_element(params.query.data, to + 1, params.query.dtype, b);
    }
  }
  for (int i = first; i < latent_dim; i += threads)
    store_element(kv.keys, slot + i, kv.dtype,
                  load_element(params.latent.data, token * params.latent.row_stride + i, params.latent.dtype));
}

__global__ void __launch_bounds__(kLatentThreads) append_latents(const __grid_constant__ LatentAppendParams params) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  for (int token = static_cast<int>(blockIdx.x); token < params.q.rows; token += static_cast<int>(gridDim.x))
    append_row(params, token);
}

}  // namespace

void latent_append_sm90(const LatentAppendParams& params, const Lane& lane) {
  launch_sm90(
      "latent_append", append_latents,
      {.grid = dim3(static_cast<unsigned>(params.q.rows),
                    static_cast<unsigned>(ceil_div((params.num_heads + 1) * params.rope_dim / 2, kLatentThreads))),
       .block = kLatentThreads,
       .fit = GridFit::trimmed},
      lane, params);
}

}  // namespace heddle
