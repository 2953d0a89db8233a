// A thread copies eight elements of a row, or single elements where rows are not made of packs of eight.
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "device/launch_sm90.cuh"
#include "kernels/attention/gather_latents_sm90.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kGatherLatentsThreads = 256;

template <class From, class To, bool kPacks>
__global__ void __launch_bounds__(kGatherLatentsThreads)
    gather_latents_kernel(const __grid_constant__ GatherLatentsParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  constexpr int kElements = kPacks ? kPackElements : 1;
  const PagedKv& kv = params.kv;
  const int of_row = kv.head_dim / kElements;
  const std::int64_t count = params.rows.rows * of_row;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kGatherLatentsThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kGatherLatentsThreads) {
    const std::int64_t row = i / of_row;
    const int column = static_cast<int>(i - row * of_row) * kElements;
    int sequence = 0;
    std::int64_t first_row = 0;
    for (;; ++sequence) {
      const std::int64_t end = first_row + round_up(params.sequences[sequence].num_keys, kExpandedBlockKeys);
      if (row < end) break;
      first_row = end;
    }
    To* to = element<To>(params.rows, row, column);
    const int key = static_cast<int>(row - first_row), position = params.first + key;
    if (key >= params.sequences[sequence].num_keys) {
      for (int j = 0; j < kElements; ++j) to[j] = sm90::rounded<To>(0);
      continue;
    }
    const std::int32_t page =
        params.page_table[sequence * static_cast<std::ptrdiff_t>(params.page_table_stride) + position / kv.page_size];
    const From* from = static_cast<const From*>(kv.keys) + kv.offset(page, 0, position % kv.page_size) + column;
    if constexpr (kPacks)
      store_pack(to, load_pack(from));
    else
      *to = sm90::rounded<To>(sm90::widened(*from));
  }
}

}  // namespace

void gather_latents_sm90(const GatherLatentsParams& params, const Lane& lane) {
  const PagedKv& kv = params.kv;
  const bool packs = takes_packs(params.rows) && rows_are_aligned(kv.keys, kv.head_dim, kv.dtype);
  const std::int64_t count = params.rows.rows * kv.head_dim / (packs ? kPackElements : 1);
  const LaunchShape shape{
      .grid = dim3(narrow<unsigned>(ceil_div<std::int64_t>(count, kGatherLatentsThreads), "blocks of latents")),
      .block = kGatherLatentsThreads,
      .fit = GridFit::trimmed};
  with_element(kv.dtype, [&]<class From>() {
    with_element(params.rows.dtype, [&]<class To>() {
      launch_sm90("gather_latents",
                  packs ? gather_latents_kernel<From, To, true> : gather_latents_kernel<From, To, false>, shape, lane,
                  params);
    });
  });
}

}  // namespace heddle
