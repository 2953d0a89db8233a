// A warp takes a row of W, which is one head's, and kPlainTokens tokens (linear_sm90_packs.cuh). With few tokens and short
// rows it takes several, and loads them before it waits for x: no kernel writes weights. Many tokens go to tensor cores.
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
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

constexpr int kEarlyRows = 4;   // of W, that a warp has in registers
constexpr int kEarlyPacks = 2;  // of a row, that a lane has: rows of up to 512 elements
constexpr int kEarlyTokens = 8;

// The order of a sum is that of multiply_packs_of(): a lane takes every 32nd pack, then lanes are added.
template <class T>
__global__ void __launch_bounds__(kPlainWarps * 32) heads_early(const __grid_constant__ HeadLinearParams params) {
  const std::int64_t out = params.out_features(), in = params.weight.in_features;
  const std::int64_t first_row = (std::int64_t{blockIdx.x} * kPlainWarps + threadIdx.x / 32) * kEarlyRows;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* weight = static_cast<const T*>(params.weight.blocks[0].data);
  RawPack<T> rows[kEarlyRows][kEarlyPacks];
  const auto exists = [&](int r, int p) {
    return first_row + r < params.weight.out_features && (p * 32 + lane) * kPackElements < in;
  };
#pragma unroll
  for (int r = 0; r < kEarlyRows; ++r)
#pragma unroll
    for (int p = 0; p < kEarlyPacks; ++p)
      if (exists(r, p)) rows[r][p] = load_raw(weight + (first_row + r) * in + (p * 32 + lane) * kPackElements);
  wait_for_earlier_kernels();
  let_later_kernels_start();
  for (std::int64_t token = 0; token < params.x.rows; ++token) {
#pragma unroll
    for (int r = 0; r < kEarlyRows; ++r) {
      if (first_row + r >= params.weight.out_features) break;
      const std::int64_t head = (first_row + r) / out;
      const T* x = static_cast<const T*>(params.x.data) + token * params.x.row_stride + head * params.x_stride;
      float sum = 0;
#pragma unroll
      for (int p = 0; p < kEarlyPacks; ++p) {
        if (!exists(r, p)) continue;
        const Pack weights = unpack(rows[r][p]), values = load_pack(x + (p * 32 + lane) * kPackElements);
#pragma unroll
        for (int e = 0; e < kPackElements; ++e) sum = fmaf(values.values[e], weights.values[e], sum);
      }
      for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
      if (lane == 0)
        static_cast<T*>(params.y.data)[token * params.y.row_stride + head * params.y_stride + (first_row + r) % out] =
            sm90::rounded<T>(sum);
    }
  }
}

template <class T>
void heads_early_sm90(const HeadLinearParams& params, const Lane& lane) {
  launch_sm90("head_linear", heads_early<T>,
              {.grid = dim3(static_cast<unsigned>(
                   ceil_div<std::int64_t>(params.weight.out_features, std::int64_t{kPlainWarps} * kEarlyRows))),
               .block = kPlainWarps * 32},
              lane, params);
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

// Whether y takes pairs of elements; `packs` has been found.
bool takes_tiles_of_heads(const HeadLinearParams& params) {
  constexpr std::int64_t kFewestTokens = 33;
  return params.x.rows >= kFewestTokens && params.weight.out_features < (std::int64_t{1} << 30) &&
         params.out_features() % 2 == 0 && params.y_stride % 2 == 0 && params.y.row_stride % 2 == 0 &&
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
                     weight.in_features % kPackElements == 0 && params.x_stride % kPackElements == 0 &&
                     takes_packs(params.x.data, params.x.row_stride, params.x.dtype) &&
                     is_aligned(weight.blocks[0].data);
  // A grid that loads early has no loop over rows: it is for a lane of the whole device, as a lane's part takes fewer blocks.
  if (packs && params.x.rows <= kEarlyTokens && weight.in_features <= kEarlyPacks * 32 * kPackElements &&
      passes_on(lane) == Passes::one)
    return with_16_bit_element(weight.dtype, [&]<class T>() { heads_early_sm90<T>(params, lane); });
  if (packs && takes_tiles_of_heads(params))
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
