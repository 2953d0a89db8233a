// A warp takes a row of W, which is one head's, and kPlainTokens tokens (linear_sm90_packs.cuh). Aligned operands go to tensor
// cores: few tokens by head_linear_few_sm90.cuh, many in tiles of linear_sm90_tiles.cuh.
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "kernels/linear/head_linear_few_sm90.cuh"
#include "kernels/linear/head_linear_sm90.h"
#include "kernels/linear/linear_sm90_packs.cuh"
#include "kernels/linear/linear_sm90_tiles.cuh"

namespace heddle {
namespace {

template <RowLoads kLoads, class T, class W>
__global__ void __launch_bounds__(kPlainWarps * 32) heads_plain(const __grid_constant__ HeadLinearParams params) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  const std::int64_t out = params.out_features(), in = params.weight.in_features;
  const auto* weight = static_cast<const W*>(params.weight.blocks[0].data);
  const int num_tokens = static_cast<int>(params.x.rows);
  for (int first = static_cast<int>(blockIdx.y) * kPlainTokens; first < num_tokens;
       first += static_cast<int>(gridDim.y) * kPlainTokens)
    for (std::int64_t row = std::int64_t{blockIdx.x} * kPlainWarps + threadIdx.x / 32; row < params.weight.out_features;
         row += std::int64_t{gridDim.x} * kPlainWarps) {
      const std::int64_t head = row / out;
      const LinearOperands<T, W, T> of_head{.x = static_cast<const T*>(params.x.data) + head * params.x_stride,
                                            .weight = weight + head * out * in,
                                            .bias = nullptr,
                                            .y = static_cast<T*>(params.y.data) + head * params.y_stride,
                                            .x_stride = params.x.row_stride,
                                            .y_stride = params.y.row_stride,
                                            .in_features = in,
                                            .out_features = out,
                                            .num_tokens = num_tokens};
      multiply_row_with<kLoads>(of_head, row % out, first);
    }
}

// A block takes 128 tokens and 128 rows of a head's matrix.
template <class T>
__global__ void __launch_bounds__(sm90::kTileThreads, 2) heads_tiles(const __grid_constant__ HeadLinearParams params) {
  extern __shared__ __align__(1024) std::byte shared_bytes[];
  auto& shared = *reinterpret_cast<sm90::GemmTileShared*>(shared_bytes);
  wait_for_earlier_kernels();
  let_later_kernels_start();
  const int out = static_cast<int>(params.out_features()), in = static_cast<int>(params.weight.in_features);
  const int tiles_of_head = ceil_div(out, sm90::kTileRows), num_tokens = static_cast<int>(params.x.rows);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int token = static_cast<int>(blockIdx.y) * sm90::kTileRows; token < num_tokens;
       token += static_cast<int>(gridDim.y) * sm90::kTileRows)
    for (int tile = static_cast<int>(blockIdx.x); tile < params.num_heads * tiles_of_head;
         tile += static_cast<int>(gridDim.x)) {
      const int head = tile / tiles_of_head, first = tile % tiles_of_head * sm90::kTileRows;
      const T* x = static_cast<const T*>(params.x.data) + head * params.x_stride;
      const T* weight = static_cast<const T*>(params.weight.blocks[0].data) + std::int64_t{head} * out * in;
      T* const y = static_cast<T*>(params.y.data) + head * params.y_stride;
      const auto x_of = [&](int r) -> const T* {
        return token + r < num_tokens ? x + (token + r) * params.x.row_stride : nullptr;
      };
      const auto weight_of = [&](int r) -> const T* {
        return first + r < out ? weight + std::int64_t{first + r} * in : nullptr;
      };
      sm90::GemmTileSums sums;
      sm90::multiply_gemm_tile<T>(x_of, weight_of, in, shared, sums);
      sm90::for_each_tile_row([&](int r, int i, int half) {
        if (token + r >= num_tokens) return;
#pragma unroll
        for (int j = 0; j < sm90::kTileFragments; ++j) {
          const int column = first + warp % 4 * 32 + 8 * j + lane % 4 * 2;
          if (column < out)
            *reinterpret_cast<std::uint32_t*>(y + (token + r) * params.y.row_stride + column) =
                sm90::pack<T>(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
        }
      });
    }
}

template <class T>
void heads_tiles_sm90(const HeadLinearParams& params, const Lane& lane) {
  const auto tiles = params.num_heads * ceil_div<std::int64_t>(params.out_features(), sm90::kTileRows);
  launch_sm90("head_linear", heads_tiles<T>,
              {.grid = dim3(static_cast<unsigned>(tiles),
                            static_cast<unsigned>(ceil_div<std::int64_t>(params.x.rows, sm90::kTileRows))),
               .block = sm90::kTileThreads,
               .shared_bytes = sizeof(sm90::GemmTileShared),
               .fit = GridFit::trimmed},
              lane, params);
}

constexpr std::int64_t kFewestTileTokens = 33;

bool takes_tiles_of_heads(const HeadLinearParams& params) {
  return params.x.rows >= kFewestTileTokens && params.weight.out_features < (std::int64_t{1} << 30);
}

// Whether y takes pairs of neighbours.
bool stores_pairs(const HeadLinearParams& params) {
  return params.out_features() % 2 == 0 && params.y_stride % 2 == 0 && params.y.row_stride % 2 == 0 &&
         is_aligned(params.y.data, 4);
}

}  // namespace

void head_linear_sm90(const HeadLinearParams& params, const Lane& lane) {
  require(params.x.dtype == params.y.dtype, "head_linear: x is {}, y {}: expected the same on a GPU",
          name_of(params.x.dtype), name_of(params.y.dtype));
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(params.weight.out_features, kPlainWarps)),
                   static_cast<unsigned>(ceil_div<std::int64_t>(params.x.rows, kPlainTokens))),
      .block = kPlainWarps * 32,
      .fit = GridFit::trimmed};
  const Weight& weight = params.weight;
  const bool packs = params.x.dtype == weight.dtype && size_of(weight.dtype) == 2 &&
                     params.x_stride % kPackElements == 0 && rows_are_aligned(params.x) && rows_are_aligned(weight);
  const bool pairs = packs && stores_pairs(params);
  if (pairs && takes_few_heads(params))
    return with_16_bit_element(weight.dtype, [&]<class T>() { heads_few_sm90<T>(params, lane); });
  if (pairs && takes_tiles_of_heads(params))
    return with_16_bit_element(weight.dtype, [&]<class T>() { heads_tiles_sm90<T>(params, lane); });
  if (packs)
    return with_16_bit_element(weight.dtype, [&]<class T>() {
      launch_sm90("head_linear", heads_plain<RowLoads::packs, T, T>, shape, lane, params);
    });
  with_element(params.x.dtype, [&]<class T>() {
    with_element(weight.dtype, [&]<class W>() {
      launch_sm90("head_linear", heads_plain<RowLoads::elements, T, W>, shape, lane, params);
    });
  });
}

}  // namespace heddle
