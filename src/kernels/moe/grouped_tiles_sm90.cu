// A block takes 128 rows of a group and 128 rows of its weight; for swiglu 64 rows of gate and the 64 of up, interleaved
// by eight, so that a thread has both sums of a feature.
#include "kernels/moe/grouped_tiles_sm90.h"

#include <algorithm>

#include "base/checked.h"
#include "base/dtype_switch.h"
#include "device/launch_sm90.cuh"
#include "kernels/linear/linear_sm90_tiles.cuh"
#include "kernels/moe/grouped_tile_sm90.cuh"
#include "kernels/rows/swiglu_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): this file's own kernels

enum class TileOutput { sums, swiglu };

template <class T>
struct TileOperands {
  const T* x;
  T* y;
  std::int64_t x_stride, y_stride;
  const std::int32_t* token_of;  // null: row r of the groups is row r of x
  const void* const* table;
  const std::int32_t* first_row;
  int count, in_features;
  int columns;  // of y: features of a weight, or of gate
};

template <TileOutput kOutput>
constexpr int kTileColumns = kOutput == TileOutput::swiglu ? kTileRows / 2 : kTileRows;

template <TileOutput kOutput, class T>
__device__ void multiply_group_tile(const TileOperands<T>& op, const GroupTile& tile, int first_column,
                                    GemmTileShared& shared) {
  const auto* weight = static_cast<const T*>(op.table[tile.group]);
  const auto x_of = [&](int r) -> const T* {
    if (r >= tile.rows) return nullptr;
    const int row = tile.first + r;
    return op.x + (op.token_of == nullptr ? row : std::int64_t{op.token_of[row]}) * op.x_stride;
  };
  const auto weight_of = [&](int r) -> const T* {
    const int column = first_column + (kOutput == TileOutput::swiglu ? r / 16 * 8 + r % 8 : r);
    if (column >= op.columns) return nullptr;
    const int row = column + (kOutput == TileOutput::swiglu && r / 8 % 2 == 1 ? op.columns : 0);
    return weight + std::int64_t{row} * op.in_features;
  };
  GemmTileSums sums;
  multiply_gemm_tile<T>(x_of, weight_of, op.in_features, shared, sums);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for_each_tile_row([&](int r, int i, int half) {
    if (r >= tile.rows) return;
    T* const y = op.y + (tile.first + r) * op.y_stride;
#pragma unroll
    for (int j = 0; j < kTileFragments; j += kOutput == TileOutput::swiglu ? 2 : 1) {
      float low = sums[i][j][2 * half], high = sums[i][j][2 * half + 1];
      int column = first_column + warp % 4 * 32 + 8 * j + lane % 4 * 2;
      if constexpr (kOutput == TileOutput::swiglu) {
        low = gated(low, sums[i][j + 1][2 * half], T{});
        high = gated(high, sums[i][j + 1][2 * half + 1], T{});
        column = first_column + warp % 4 * 16 + 4 * j + lane % 4 * 2;
      }
      if (column < op.columns) *reinterpret_cast<std::uint32_t*>(y + column) = pack<T>(low, high);
    }
  });
}

template <TileOutput kOutput, class T>
__global__ void __launch_bounds__(kTileThreads, 2) multiply_tiles(const __grid_constant__ TileOperands<T> op) {
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  auto& shared = *reinterpret_cast<GemmTileShared*>(shared_bytes);
  wait_for_earlier_kernels();
  let_later_kernels_start();
  for (int at = static_cast<int>(blockIdx.y);; at += static_cast<int>(gridDim.y)) {
    const GroupTile tile = find_group_tile<kTileRows>(op.first_row, op.count, at);
    if (tile.rows == 0) return;
    for (int first = static_cast<int>(blockIdx.x) * kTileColumns<kOutput>; first < op.columns;
         first += static_cast<int>(gridDim.x) * kTileColumns<kOutput>)
      multiply_group_tile<kOutput>(op, tile, first, shared);
  }
}

template <TileOutput kOutput>
void enqueue_tiles(const GroupedLinearParams& params, const Tensor& x, const std::int32_t* token_of, const Tensor& y,
                   const Lane& lane) {
  const Weight& weight = params.group.weights[0];
  const std::int64_t tiles = most_group_tiles<kTileRows>(y.rows, params.group.count);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(y.columns, kTileColumns<kOutput>)),
                                       static_cast<unsigned>(std::min<std::int64_t>(tiles, 65535))),
                          .block = kTileThreads,
                          .shared_bytes = sizeof(GemmTileShared),
                          .fit = GridFit::trimmed};
  with_16_bit_element(weight.dtype, [&]<class T>() {
    const TileOperands<T> op{.x = static_cast<const T*>(x.data),
                             .y = static_cast<T*>(y.data),
                             .x_stride = x.row_stride,
                             .y_stride = y.row_stride,
                             .token_of = token_of,
                             .table = params.group.table,
                             .first_row = params.first_row,
                             .count = params.group.count,
                             .in_features = static_cast<int>(weight.in_features),
                             .columns = static_cast<int>(y.columns)};
    launch_sm90("grouped_linear", multiply_tiles<kOutput, T>, shape, lane, op);
  });
}

// x: what is multiplied.
bool takes_tiles(const GroupedLinearParams& params, const Tensor& x, const Tensor& y) {
  constexpr std::int64_t kMostFeatures = std::int64_t{1} << 30;
  const Weight& weight = params.group.weights[0];
  const auto is_packed = [](const Weight& one) { return rows_are_aligned(one); };
  return x.dtype == weight.dtype && y.dtype == weight.dtype && size_of(weight.dtype) == 2 && takes_packs(x) &&
         weight.in_features <= kMostFeatures && weight.out_features <= kMostFeatures && y.columns % 2 == 0 &&
         rows_are_aligned(y, 4) &&
         std::all_of(params.group.weights, params.group.weights + params.group.count, is_packed);
}

}  // namespace

bool grouped_tiles_takes(const GroupedLinearParams& params) {
  return takes_tiles(params, params.x, params.y);
}

bool grouped_swiglu_tiles_takes(const GroupedSwigluParams& params) {
  return takes_tiles(params.gate_up, params.x, params.y);
}

void grouped_tiles(const GroupedLinearParams& params, const Lane& lane) {
  enqueue_tiles<TileOutput::sums>(params, params.x, nullptr, params.y, lane);
}

void grouped_swiglu_tiles(const GroupedSwigluParams& params, const Lane& lane) {
  enqueue_tiles<TileOutput::swiglu>(params.gate_up, params.x, params.token_of, params.y, lane);
}

}  // namespace heddle
