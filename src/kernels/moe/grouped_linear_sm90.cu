// Selects the kernel, and has the one that takes everything: a block takes kPlainWarps rows of a weight and up to
// kPlainTokens rows of one group.
#include <algorithm>

#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "kernels/linear/linear_sm90_packs.cuh"
#include "kernels/moe/grouped_few_sm90.h"
#include "kernels/moe/grouped_linear_sm90.h"
#include "kernels/moe/grouped_tile_sm90.cuh"
#include "kernels/moe/grouped_tiles_sm90.h"

namespace heddle {
namespace {

struct GroupedOperands {
  Tensor x, y;
  const void* const* table;
  const std::int32_t* first_row;
  int count;
  std::int64_t in_features, out_features;
};

template <RowLoads kLoads, class T, class W>
__global__ void __launch_bounds__(kPlainWarps * 32) grouped_plain(const __grid_constant__ GroupedOperands op) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  const std::int64_t rows_of_grid = std::int64_t{gridDim.x} * kPlainWarps;
  for (int at = static_cast<int>(blockIdx.y);; at += static_cast<int>(gridDim.y)) {
    const GroupTile tile = find_group_tile<kPlainTokens>(op.first_row, op.count, at);
    if (tile.rows == 0) return;
    const LinearOperands<T, W, T> of_tile{.x = static_cast<const T*>(op.x.data) + tile.first * op.x.row_stride,
                                          .weight = static_cast<const W*>(op.table[tile.group]),
                                          .bias = nullptr,
                                          .y = static_cast<T*>(op.y.data) + tile.first * op.y.row_stride,
                                          .x_stride = op.x.row_stride,
                                          .y_stride = op.y.row_stride,
                                          .in_features = op.in_features,
                                          .out_features = op.out_features,
                                          .num_tokens = tile.rows};
    for (std::int64_t row = std::int64_t{blockIdx.x} * kPlainWarps + threadIdx.x / 32; row < op.out_features;
         row += rows_of_grid)
      multiply_row_with<kLoads>(of_tile, row, 0);
  }
}

}  // namespace

void grouped_linear_sm90(const GroupedLinearParams& params, const Lane& lane) {
  require(params.x.dtype == params.y.dtype, "grouped_linear: x is {}, y {}: expected the same on a GPU",
          name_of(params.x.dtype), name_of(params.y.dtype));
  const bool plain = plain_is_faster(params);
  if (!plain && grouped_few_takes(params)) return grouped_few(params, lane);
  if (!plain && grouped_tiles_takes(params)) return grouped_tiles(params, lane);
  const Weight& weight = params.group.weights[0];
  const GroupedOperands op{.x = params.x,
                           .y = params.y,
                           .table = params.group.table,
                           .first_row = params.first_row,
                           .count = params.group.count,
                           .in_features = weight.in_features,
                           .out_features = weight.out_features};
  const std::int64_t tiles = most_group_tiles<kPlainTokens>(params.x.rows, params.group.count);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(weight.out_features, kPlainWarps)),
                                       static_cast<unsigned>(std::min<std::int64_t>(tiles, 65535))),
                          .block = kPlainWarps * 32,
                          .fit = GridFit::trimmed};
  const auto is_packed = [&](const Weight& one) { return rows_are_aligned(one); };
  const bool packs = params.x.dtype == weight.dtype && size_of(weight.dtype) == 2 && takes_packs(params.x) &&
                     std::all_of(params.group.weights, params.group.weights + params.group.count, is_packed);
  if (packs)
    return with_16_bit_element(weight.dtype, [&]<class T>() {
      launch_sm90("grouped_linear", grouped_plain<RowLoads::packs, T, T>, shape, lane, op);
    });
  with_element(params.x.dtype, [&]<class T>() {
    with_element(weight.dtype, [&]<class W>() {
      launch_sm90("grouped_linear", grouped_plain<RowLoads::elements, T, W>, shape, lane, op);
    });
  });
}

}  // namespace heddle
