// How keys and values come from the pages into shared memory: by the copy engine, in boxes of some rows of a page and
// 128 (or 64) bytes of each, swizzled so that neither ldmatrix nor wgmma meets a bank twice.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "kernels/attention.h"

namespace heddle::sm90 {

// A tile of kRows keys or values in shared memory: column blocks [kRows, kBoxColumns] one after the other.
template <int kRows, int kHeadDim>
struct Tile {
  static constexpr int kBoxColumns = kHeadDim % 64 == 0 ? 64 : 32;
  static constexpr int kColumnBlocks = kHeadDim / kBoxColumns;
  static constexpr int kRowBytes = 2 * kBoxColumns;
  static constexpr int kBlockBytes = kRows * kRowBytes;
  static constexpr int kBytes = kColumnBlocks * kBlockBytes;
  static_assert(kHeadDim % kBoxColumns == 0 && kRows % 8 == 0);

  // Of the eight elements from `column` on, a multiple of 8: the copy engine exchanges the 16-byte pieces of a row by
  // the bits of the address above them.
  static __device__ int offset(int row, int column) {
    const int piece = column % kBoxColumns / 8;
    const int moved = kRowBytes == 128 ? piece ^ (row % 8) : piece ^ (row / 2 % 4);
    return column / kBoxColumns * kBlockBytes + row * kRowBytes + moved * 16;
  }
};

// Calls f with the head_dim as a constant. False: the fast kernels have none for it.
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

// Rows of a box: a page's, or 64 of a larger page.
inline int box_rows(int page_size) {
  return std::min(page_size, 64);
}

// Whether the copy engine can bring pages as tiles ask for it.
inline bool copied_by_boxes(const PagedKv& kv) {
  const auto aligned = [](const void* pages) { return reinterpret_cast<std::uintptr_t>(pages) % 16 == 0; };
  return kv.dtype != DType::float32 && std::has_single_bit(static_cast<unsigned>(kv.page_size)) && kv.page_size >= 16 &&
         aligned(kv.keys) && aligned(kv.values);
}

// Pages as a matrix of [pages * heads * slots, head_dim]. How many pages there are is not known here and not asked: no
// box lies outside of a page that a page table names. `promotion`: what a miss in L2 brings from memory around what is
// asked for.
inline CUtensorMap page_map(const PagedKv& kv, void* pages,
                            CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) found = nullptr;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  if (encode == nullptr)
    throw_error<Failure>("attention: this driver has no cuTensorMapEncodeTiled; it must be of CUDA 12 or later");
  const bool wide = kv.head_dim % 64 == 0;
  const std::array<cuuint64_t, 2> sizes{static_cast<cuuint64_t>(kv.head_dim), 0x7fffffff};
  const std::array<cuuint64_t, 1> strides{static_cast<cuuint64_t>(kv.head_dim) * 2};
  const std::array<cuuint32_t, 2> box{wide ? 64u : 32u, static_cast<cuuint32_t>(box_rows(kv.page_size))};
  const std::array<cuuint32_t, 2> steps{1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, pages, sizes.data(), strides.data(), box.data(), steps.data(),
             CU_TENSOR_MAP_INTERLEAVE_NONE, wide ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B, promotion,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw_error<Failure>("attention: cuTensorMapEncodeTiled returns {} for pages of {} slots of {}",
                         static_cast<int>(result), kv.page_size, kv.head_dim);
  return map;
}

}  // namespace heddle::sm90
