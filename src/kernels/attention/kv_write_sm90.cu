// A block takes some tokens, or part of one. Its threads load packs of the rows while its warps find the tokens' slots.
#include <type_traits>

#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/attention/kv_write_sm90.cuh"
#include "kernels/attention/kv_write_sm90.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kWriteThreads = 256;
constexpr int kWriteTokens = 4;  // per block, where tokens are many

// A thread takes the same pack, of k or of v, of `kTokens` tokens at a time.
template <class From, class To, int kTokens>
__global__ void __launch_bounds__(kWriteThreads) write_packs(const __grid_constant__ KvWriteParams params) {
  __shared__ std::int64_t slots[kTokens];
  let_later_kernels_start();
  const int packs = static_cast<int>(params.k.columns / kPackElements), tokens = static_cast<int>(params.k.rows);
  const int packs_of_head = params.kv.head_dim / kPackElements;
  wait_for_earlier_kernels();
  const auto write = [&](int index, int first) {
    const bool there = index < 2 * packs, is_key = index < packs;
    const int pack = is_key ? index : index - packs;
    const Tensor& x = is_key ? params.k : params.v;
    RawPack<From> held[kTokens];
#pragma unroll
    for (int j = 0; j < kTokens; ++j)
      if (there && first + j < tokens)
        held[j] = load_raw(element<const From>(x, first + j, std::int64_t{pack} * kPackElements));
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (warp < kTokens && first + warp < tokens) {
      const std::int64_t slot = slot_of(params.sequences, params.kv, first + warp);
      if (threadIdx.x % 32 == 0) slots[warp] = slot;
    }
    __syncthreads();
    if (!there) return;
    const int head = pack / packs_of_head;
    To* pages = static_cast<To*>(is_key ? params.kv.keys : params.kv.values) +
                std::int64_t{head} * params.kv.page_size * params.kv.head_dim +
                (pack - head * packs_of_head) * kPackElements;
#pragma unroll
    for (int j = 0; j < kTokens; ++j)
      if (first + j < tokens && slots[j] != kNoSlot) store_pack(pages + slots[j], unpack(held[j]));
  };
  for (int piece = static_cast<int>(blockIdx.y) * kWriteThreads; piece < 2 * packs;
       piece += static_cast<int>(gridDim.y) * kWriteThreads)
    for (int first = static_cast<int>(blockIdx.x) * kTokens; first < tokens;
         first += static_cast<int>(gridDim.x) * kTokens) {
      write(piece + static_cast<int>(threadIdx.x), first);
      __syncthreads();  // before the next tokens' slots
    }
}

__global__ void __launch_bounds__(kWriteThreads) write_elements(const __grid_constant__ KvWriteParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int columns = static_cast<int>(params.k.columns);
  for (int token = static_cast<int>(blockIdx.x); token < params.k.rows; token += static_cast<int>(gridDim.x)) {
    const std::int64_t slot = slot_of(params.sequences, params.kv, token);
    if (slot == kNoSlot) continue;
    for (int i = blockIdx.y * kWriteThreads + threadIdx.x; i < 2 * columns; i += gridDim.y * kWriteThreads) {
      const bool is_key = i < columns;
      const int column = is_key ? i : i - columns, head = column / params.kv.head_dim;
      const Tensor& x = is_key ? params.k : params.v;
      store_element(
          is_key ? params.kv.keys : params.kv.values,
          slot + std::int64_t{head} * params.kv.page_size * params.kv.head_dim + (column - head * params.kv.head_dim),
          params.kv.dtype, load_element(x.data, token * x.row_stride + column, x.dtype));
    }
  }
}

}  // namespace

void kv_write_sm90(const KvWriteParams& params, const Lane& lane) {
  const PagedKv& kv = params.kv;
  const bool packs = takes_packs(params.k) && takes_packs(params.v) && kv.head_dim % kPackElements == 0 &&
                     rows_are_aligned(kv.keys, kv.head_dim, kv.dtype) &&
                     rows_are_aligned(kv.values, kv.head_dim, kv.dtype);
  const std::int64_t pieces = 2 * params.k.columns / (packs ? kPackElements : 1);
  const std::int64_t blocks_of_token = ceil_div<std::int64_t>(pieces, kWriteThreads);
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.k.rows), static_cast<unsigned>(blocks_of_token)),
                    .block = kWriteThreads,
                    .fit = GridFit::trimmed};
  const auto is_half = [](DType dtype) { return dtype != DType::float32; };
  const bool mixed = is_half(params.k.dtype) && is_half(kv.dtype) && params.k.dtype != kv.dtype;
  if (!packs || mixed || blocks_of_token > 65535) {
    shape.grid.y = shape.grid.y < 16 ? shape.grid.y : 16;
    return launch_sm90("kv_write", write_elements, shape, lane, params);
  }
  constexpr std::int64_t kManyBlocks = 2048;  // several per SM
  const bool many = params.k.rows * blocks_of_token >= kManyBlocks;
  if (many) shape.grid.x = static_cast<unsigned>(ceil_div<std::int64_t>(params.k.rows, kWriteTokens));
  with_element(params.k.dtype, [&]<class From>() {
    with_element(kv.dtype, [&]<class To>() {
      if constexpr (sizeof(From) == 4 || sizeof(To) == 4 || std::is_same_v<From, To>)
        launch_sm90("kv_write", many ? write_packs<From, To, kWriteTokens> : write_packs<From, To, 1>, shape, lane,
                    params);
    });
  });
}

}  // namespace heddle
