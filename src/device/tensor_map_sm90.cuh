// Tensor maps, by which TMA copies tiles of a matrix to shared memory, with zeros outside the matrix, and back.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "base/error.h"

namespace heddle::sm90 {

struct MatrixBoxes {
  const void* data = nullptr;  // of 16-bit elements, aligned to 16 bytes
  std::uint64_t rows = 0, columns = 0;
  std::uint64_t row_stride = 0;                 // elements, a multiple of 8
  std::uint32_t box_rows = 0, box_columns = 0;  // of a tile, at most 256; columns at most the swizzle's width
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;  // the granularity of loads into L2
};

// The driver's cuTensorMapEncodeTiled. Throws Failure that names `op` if it has none.
inline auto tensor_map_encoder(const char* op) {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) found = nullptr;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  if (encode == nullptr)
    throw_error<Failure>("{}: this driver has no cuTensorMapEncodeTiled; it must be of CUDA 12 or later", op);
  return encode;
}

// Of a matrix, or, with `layers` > 1, of matrices of one shape that lie `layer_bytes` (a multiple of 16) apart.
// `kDimensions` is 2 for the first, 3 for the second, also of one layer.
template <int kDimensions>
CUtensorMap encoded_map(const char* op, const MatrixBoxes& matrix, std::uint64_t layers, std::uint64_t layer_bytes) {
  static_assert(kDimensions == 2 || kDimensions == 3);
  const std::array<cuuint64_t, 3> sizes{matrix.columns, matrix.rows, layers};
  const std::array<cuuint64_t, 2> strides{matrix.row_stride * 2, layer_bytes};
  const std::array<cuuint32_t, 3> box{matrix.box_columns, matrix.box_rows, 1};
  const std::array<cuuint32_t, 3> steps{1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      tensor_map_encoder(op)(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, kDimensions, const_cast<void*>(matrix.data),
                             sizes.data(), strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                             matrix.swizzle, matrix.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw_error<Failure>("{}: cuTensorMapEncodeTiled returns {} for boxes {} x {} of {} x {} x {}", op,
                         static_cast<int>(result), matrix.box_rows, matrix.box_columns, layers, matrix.rows,
                         matrix.columns);
  return map;
}

// Both throw Failure that names `op` if the driver has no tensor maps or rejects this one.
inline CUtensorMap tensor_map(const char* op, const MatrixBoxes& matrix) {
  return encoded_map<2>(op, matrix, 1, 0);
}
// Of matrices of one shape that lie `layer_bytes` apart, a multiple of 16.
inline CUtensorMap layered_map(const char* op, const MatrixBoxes& matrix, std::uint64_t layers,
                               std::uint64_t layer_bytes) {
  return encoded_map<3>(op, matrix, layers, layer_bytes);
}

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies the tile at (column, row) of a matrix to shared memory. Completes on `barrier`.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, int column, int row, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// The same of a layer of layered_map().
__device__ inline void copy_layer_box(std::uint32_t to, const CUtensorMap& map, int column, int row, int layer,
                                      std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(layer), "r"(barrier)
      : "memory");
}

// Multicast: to the same offset in each block of the cluster whose bit is set in `blocks`; completes on each barrier.
__device__ inline void copy_box_to_blocks(std::uint32_t to, const CUtensorMap& map, int column, int row,
                                          std::uint32_t barrier, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}

// Starts a copy of a tile from shared memory to (column, row) of a matrix, clipped to the matrix. The stores of a
// thread between two commits form a group.
__device__ inline void store_box(const CUtensorMap& map, int column, int row, std::uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(column),
               "r"(row), "r"(from)
               : "memory");
}
__device__ inline void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but the last kPending of the thread's groups have read shared memory, which may then be written again.
template <int kPending = 0>
__device__ inline void wait_until_stores_have_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
// Waits until they have also written.
template <int kPending = 0>
__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace heddle::sm90
