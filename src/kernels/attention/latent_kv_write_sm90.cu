// The blocks of a token share the pairs of all heads and of the key, and the latent. A thread has one pair as a rule: sine and
// cosine in float64 take long. They and the slot in the cache are computed before this kernel waits for earlier ones (PDL), if
// the step's arrays are in place.
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "device/launch_sm90.cuh"
#include "kernels/attention/kv_write_sm90.cuh"
#include "kernels/attention/latent_kv_write_sm90.h"
#include "kernels/attention/rope_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kLatentThreads = 128;

template <class T>
__device__ void write_row(const LatentKvWriteParams& params, int token) {
  const PagedKv& kv = params.kv;
  const int pairs = params.rope_dim / 2, latent_dim = kv.head_dim - params.rope_dim;
  const int all_pairs = (params.num_heads + 1) * pairs;
  const std::int64_t q_width = params.q.columns / params.num_heads;
  const std::int64_t slot = slot_of(params.sequences, kv, token);
  const int first = static_cast<int>(blockIdx.y) * kLatentThreads + static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(gridDim.y) * kLatentThreads;  // of the token
  for (int i = first; i < max(all_pairs, latent_dim); i += threads) {
    const bool rotates = i < all_pairs, copies = i < latent_dim;
    const int head = i / pairs, pair = i % pairs;
    const bool is_key = head == params.num_heads;
    Rotation rotation{};
    if (rotates) rotation = rotation_of(params.positions[token], params.inv_freq[pair], params.scale);
    wait_for_earlier_kernels();
    T a{}, b{}, latent{};  // loaded together
    if (rotates) {
      const T* from = is_key ? element<T>(params.latent, token, latent_dim + 2 * pair)
                             : element<T>(params.q, token, head * q_width + q_width - params.rope_dim + 2 * pair);
      a = from[0];
      b = from[1];
    }
    if (copies) latent = *element<T>(params.latent, token, i);
    if (copies && slot != kNoSlot) store_element(kv.keys, slot + i, kv.dtype, sm90::widened(latent));
    if (!rotates) continue;
    float low = sm90::widened(a), high = sm90::widened(b);
    rotate_pair(rotation, low, high);
    if (is_key) {
      if (slot == kNoSlot) continue;
      store_element(kv.keys, slot + latent_dim + 2 * pair, kv.dtype, low);
      store_element(kv.keys, slot + latent_dim + 2 * pair + 1, kv.dtype, high);
    } else {
      T* const to = element<T>(params.query, token, (head + 1) * params.query_width() - params.rope_dim + 2 * pair);
      to[0] = sm90::rounded<T>(low);
      to[1] = sm90::rounded<T>(high);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kLatentThreads) write_latents(const __grid_constant__ LatentKvWriteParams params) {
  let_later_kernels_start();
  if (params.older_keys == OlderKeys::in_flight) wait_for_earlier_kernels();
  for (int token = static_cast<int>(blockIdx.x); token < params.q.rows; token += static_cast<int>(gridDim.x))
    write_row<T>(params, token);
  wait_for_earlier_kernels();  // as every thread does before it ends
}

}  // namespace

void latent_kv_write_sm90(const LatentKvWriteParams& params, const Lane& lane) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.q.rows),
                   static_cast<unsigned>(ceil_div((params.num_heads + 1) * params.rope_dim / 2, kLatentThreads))),
      .block = kLatentThreads,
      .fit = GridFit::trimmed};
  with_element(params.q.dtype,
               [&]<class T>() { launch_sm90("latent_kv_write", write_latents<T>, shape, lane, params); });
}

}  // namespace heddle
