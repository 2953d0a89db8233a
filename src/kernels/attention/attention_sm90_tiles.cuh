// TMA loads of keys and values from the pages into shared memory. A box has some rows of a page, and 128 (or 64) bytes
// of each, swizzled so that ldmatrix and WGMMA have no bank conflicts.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/alignment.h"
#include "device/tensor_map_sm90.cuh"
#include "kernels/attention/attention.h"
#include "kernels/sm90/tile_sm90.cuh"

namespace heddle::sm90 {

// Calls f with head_dim as a constant. False if the fast kernels do not support it.
template <class F>
bool with_head_dim(int head_dim, F f) {
  switch (head_dim) {
    case 64:
      f(std::integral_constant<int, 64>());
      return true;
    case 96:
      f(std::integral_constant<int, 96>());
      return true;
    case 128:
      f(std::integral_constant<int, 128>());
      return true;
    case 256:
      f(std::integral_constant<int, 256>());
      return true;
    default:
      return false;
  }
}

// Rows of a TMA box: a whole page, or 64 of a larger one.
inline int box_rows(int page_size) {
  return std::min(page_size, 64);
}

// Whether TMA can load pages in boxes of these tiles.
inline bool copied_by_boxes(const PagedKv& kv) {
  return kv.dtype != DType::float32 && std::has_single_bit(static_cast<unsigned>(kv.page_size)) && kv.page_size >= 16 &&
         is_aligned(kv.keys) && is_aligned(kv.values);
}

// The tensor map of pages as a matrix [pages * heads * slots, head_dim]. The number of pages is unknown here and need
// not be known: page tables name only pages that exist. `promotion`: the granularity of loads into L2.
inline CUtensorMap page_map(const PagedKv& kv, void* pages,
                            CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
  const bool wide = kv.head_dim % 64 == 0;
  return tensor_map("attention", {.data = pages,
                                  .rows = 0x7fffffff,
                                  .columns = static_cast<std::uint64_t>(kv.head_dim),
                                  .row_stride = static_cast<std::uint64_t>(kv.head_dim),
                                  .box_rows = static_cast<std::uint32_t>(box_rows(kv.page_size)),
                                  .box_columns = wide ? 64u : 32u,
                                  .swizzle = wide ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                                  .promotion = promotion});
}

}  // namespace heddle::sm90
