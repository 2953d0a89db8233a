// A block takes a token, or part of one: its threads have packs of the row on their way while they find the token's slot.
#include "kernels/elements_sm90.cuh"
#include "kernels/kv_append_sm90.h"
#include "kernels/launch_sm90.cuh"

namespace heddle {
namespace {

constexpr int kAppendThreads = 256;
constexpr int kAppendPacks = 4;  // of a thread at once

// The elements before (page, head 0, slot) of the token; all threads of the block call it.
__device__ std::int64_t slot_of(const KvAppendParams& params, int token) {
  const PagedSequences& sequences = params.sequences;
  // The token's sequence is the number of those that end before it.
  int sequence = 0;
  for (int first = 0; first < sequences.num_sequences; first += kAppendThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int counted =
        __syncthreads_count(i < sequences.num_sequences && sequences.query_start[i + 1] <= token ? 1 : 0);
    sequence += counted;
    if (counted < kAppendThreads) break;
  }
  const int position = sequences.context_len[sequence] - (sequences.query_start[sequence + 1] - token);
  const std::int64_t page =
      sequences.page_table[std::int64_t{sequence} * sequences.page_table_stride + position / params.kv.page_size];
  return (page * params.kv.num_kv_heads * params.kv.page_size + position % params.kv.page_size) * params.kv.head_dim;
}

template <class From, class To>
__global__ void __launch_bounds__(kAppendThreads) append_packs(const __grid_constant__ KvAppendParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int token = static_cast<int>(blockIdx.x), packs = static_cast<int>(params.k.columns / kPackElements);
  const int packs_of_head = params.kv.head_dim / kPackElements;
  std::int64_t slot = -1;
  for (int first = blockIdx.y * kAppendThreads + threadIdx.x;; first += kAppendPacks * gridDim.y * kAppendThreads) {
    const auto index = [&](int j) { return first + j * static_cast<int>(gridDim.y) * kAppendThreads; };
    Pack held[kAppendPacks];
#pragma unroll
    for (int j = 0; j < kAppendPacks; ++j)
      if (index(j) < 2 * packs) {
        const bool is_key = index(j) < packs;
        held[j] = load_pack(element<From>(is_key ? params.k : params.v, token,
                                          std::int64_t{is_key ? index(j) : index(j) - packs} * kPackElements));
      }
    if (slot < 0) slot = slot_of(params, token);
#pragma unroll
    for (int j = 0; j < kAppendPacks; ++j)
      if (index(j) < 2 * packs) {
        const bool is_key = index(j) < packs;
        const int pack = is_key ? index(j) : index(j) - packs, head = pack / packs_of_head;
        store_pack(static_cast<To*>(is_key ? params.kv.keys : params.kv.values) + slot +
                       std::int64_t{head} * params.kv.page_size * params.kv.head_dim +
                       (pack - head * packs_of_head) * kPackElements,
                   held[j]);
      }
    if (index(kAppendPacks) >= 2 * packs) return;
  }
}

__global__ void __launch_bounds__(kAppendThreads) append_elements(const __grid_constant__ KvAppendParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int token = static_cast<int>(blockIdx.x), columns = static_cast<int>(params.k.columns);
  const std::int64_t slot = slot_of(params, token);
  for (int i = blockIdx.y * kAppendThreads + threadIdx.x; i < 2 * columns; i += gridDim.y * kAppendThreads) {
    const bool is_key = i < columns;
    const int column = is_key ? i : i - columns, head = column / params.kv.head_dim;
    const Tensor& x = is_key ? params.k : params.v;
    store_element(
        is_key ? params.kv.keys : params.kv.values,
        slot + std::int64_t{head} * params.kv.page_size * params.kv.head_dim + (column - head * params.kv.head_dim),
        params.kv.dtype, load_element(x.data, token * x.row_stride + column, x.dtype));
  }
}

}  // namespace

void kv_append_sm90(const KvAppendParams& params, Stream& stream) {
  const PagedKv& kv = params.kv;
  const bool packs = takes_packs(params.k) && takes_packs(params.v) && kv.head_dim % kPackElements == 0 &&
                     takes_packs(kv.keys, kv.head_dim, kv.dtype) && takes_packs(kv.values, kv.head_dim, kv.dtype);
  const std::int64_t pieces = 2 * params.k.columns / (packs ? kPackElements : 1);
  constexpr std::int64_t kManyTokens = 128;  // each multiprocessor has a block
  const std::int64_t a_block = std::int64_t{kAppendThreads} * (params.k.rows < kManyTokens ? 1 : kAppendPacks);
  LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(params.k.rows), static_cast<unsigned>((pieces + a_block - 1) / a_block)),
      .block = kAppendThreads};
  shape.grid.y = shape.grid.y < 16 ? shape.grid.y : 16;
  if (!packs) return launch_sm90("kv_append", append_elements, shape, stream, params);
  with_type(params.k.dtype, [&](auto from) {
    with_type(kv.dtype, [&](auto to) {
      launch_sm90("kv_append", append_packs<decltype(from), decltype(to)>, shape, stream, params);
    });
  });
}

}  // namespace heddle
