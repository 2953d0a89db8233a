// Where the GEMM of tiles stores y = sums + bias: by TMA from shared memory where y's dtype and alignment allow it, so
// that whole lines are written while the next tile is multiplied; otherwise each thread stores its sums.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/alignment.h"
#include "device/tensor_map_sm90.cuh"
#include "fused/kernel_output_sm90.cuh"
#include "fused/tile_gemm_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"
#include "kernels/sm90/tile_sm90.cuh"

namespace heddle {

// Of T or float32 by TMA, in boxes of a warpgroup's 64 rows and 32 columns.
template <class T>
struct TileOutput {
  static constexpr int kBoxColumns = 32;
  static constexpr DType kDType = std::is_same_v<T, float>      ? DType::float32
                                  : std::is_same_v<T, bfloat16> ? DType::bfloat16
                                                                : DType::float16;

  CUtensorMap map;
  KernelOutput y;
  std::int64_t rows;
  bool by_tma;

  // Sums of a tile at (row, column) of y, of which `rows_here` rows exist: of y's own, or of a shard that others follow.
  template <int kSums, std::size_t kBytes>
  __device__ void store(std::int64_t row, std::int64_t column, int rows_here, const tile_gemm::Part& part,
                        const float (&sums)[kSums], tile_gemm::Staging<kBytes> staging) const {
    if (part.first_row >= rows_here) return;
    // A box is clipped at y's end alone.
    const bool whole = part.first_row + tile_gemm::kGroupRows <= rows_here || row + rows_here == rows;
    if (!by_tma || !whole) return store_by_threads(row, column, rows_here, part, sums);
    if (y.dtype == DType::float32)
      store_boxes<float>(row + part.first_row, column + part.first_column, part, sums, staging);
    else
      store_boxes<T>(row + part.first_row, column + part.first_column, part, sums, staging);
  }

  // Of all boxes: the thread that stores waits until memory has them.
  __device__ void finish() const {
    if (by_tma && is_storing()) sm90::wait_for_stores();
  }

 private:
  static __device__ bool is_storing() { return tile_gemm::Part::thread() == 0; }

  template <int kSums>
  __device__ void store_by_threads(std::int64_t row, std::int64_t column, int rows_here, const tile_gemm::Part& part,
                                   const float (&sums)[kSums]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (part.row() + half * 8 >= rows_here) continue;
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i)
        if (column + part.column(i) < y.columns)
          y.store_pair(row + part.row() + half * 8, column + part.column(i), sums[4 * i + 2 * half],
                       sums[4 * i + 2 * half + 1]);
    }
  }

  // Box after box through as many buffers as there is room for: while TMA reads one of two, the threads write the other.
  template <class Y, int kSums, std::size_t kBytes>
  __device__ void store_boxes(std::int64_t row, std::int64_t column, const tile_gemm::Part& part,
                              const float (&sums)[kSums], tile_gemm::Staging<kBytes> staging) const {
    constexpr int kSumsOfBox = kBoxColumns / 2;
    constexpr std::size_t kBoxBytes = std::size_t{tile_gemm::kGroupRows} * kBoxColumns * sizeof(Y);
    constexpr int kBuffers = kBytes >= 2 * kBoxBytes ? 2 : 1;
    static_assert(kBytes >= kBoxBytes);
#pragma unroll
    for (int box = 0; box < kSums / kSumsOfBox; ++box) {
      std::byte* const buffer = staging.memory + box % kBuffers * kBoxBytes;
      const std::int64_t first = column + box * kBoxColumns;
      if (first >= y.columns) break;
      if (is_storing() && box == 0) sm90::wait_until_stores_have_read();
      if (is_storing() && box > 0) sm90::wait_until_stores_have_read<kBuffers - 1>();
      part.sync();
      write_box<Y>(buffer, first, &sums[box * kSumsOfBox]);
      sm90::fence_async_proxy();
      part.sync();
      if (!is_storing()) continue;
      constexpr int kUnits = sizeof(Y) / 2;  // the map is of 16-bit units
      sm90::store_box(map, static_cast<int>(first) * kUnits, static_cast<int>(row), sm90::shared_address(buffer));
      sm90::commit_stores();
    }
  }

  // The sums of 64 rows and 32 columns from `column` on, in the layout of the box.
  template <class Y>
  __device__ void write_box(std::byte* buffer, std::int64_t column, const float* sums) const {
    const int lane = tile_gemm::Part::lane(), first_row = tile_gemm::Part::warp() * 16;
    float bias[8] = {};
    if (y.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const std::int64_t at = column + i / 2 * 8 + lane % 4 * 2 + i % 2;
        bias[i] = at < y.columns ? y.bias[at] : 0;
      }
    }
    const auto sum = [&](int i, int half, int j) { return sums[4 * i + 2 * half + j] + bias[2 * i + j]; };
    if constexpr (std::is_same_v<Y, float>) {
      using Box = sm90::Tile<tile_gemm::kGroupRows, 2 * kBoxColumns>;  // of 16-bit units
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int unit = 2 * (8 * i + lane % 4 * 2);
          *reinterpret_cast<float2*>(buffer + Box::offset(first_row + half * 8 + lane / 4, unit) + unit % 8 * 2) =
              make_float2(sum(i, half, 0), sum(i, half, 1));
        }
    } else {
      using Box = sm90::Tile<tile_gemm::kGroupRows, kBoxColumns>;
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        std::uint32_t m[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) m[j] = sm90::pack<Y>(sum(i + j / 2, j % 2, 0), sum(i + j / 2, j % 2, 1));
        sm90::store_matrices(sm90::shared_address(buffer) +
                                 static_cast<std::uint32_t>(Box::offset(first_row + lane % 16, 8 * (i + lane / 16))),
                             m);
      }
    }
  }
};

template <class T>
TileOutput<T> tile_output_of(const char* op, const Tensor& y, const float* bias) {
  TileOutput<T> output{.map = {}, .y = output_of(y, bias), .rows = y.rows, .by_tma = false};
  const std::size_t bytes = size_of(y.dtype);
  // Where a row of y ends within 16 bytes, TMA was observed to write beyond it.
  output.by_tma = (y.dtype == DType::float32 || y.dtype == TileOutput<T>::kDType) && rows_are_aligned(y) &&
                  static_cast<std::size_t>(y.columns) * bytes % 16 == 0 && y.rows > 0;
  if (!output.by_tma) return output;
  const std::uint32_t units = static_cast<std::uint32_t>(bytes / 2);
  output.map = sm90::tensor_map(op, {.data = y.data,
                                     .rows = static_cast<std::uint64_t>(y.rows),
                                     .columns = static_cast<std::uint64_t>(y.columns) * units,
                                     .row_stride = static_cast<std::uint64_t>(y.row_stride) * units,
                                     .box_rows = tile_gemm::kGroupRows,
                                     .box_columns = TileOutput<T>::kBoxColumns * units,
                                     .swizzle = units == 2 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B});
  return output;
}

}  // namespace heddle
