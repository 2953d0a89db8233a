// A warp takes two rows of a weight, for swiglu those of gate and up, and up to eight rows of a group: so many loads of
// weights are in flight that memory is busy. x stays in the L1 cache, which weights do not enter.
#include "kernels/moe/grouped_few_sm90.h"

#include <algorithm>

#include "base/checked.h"
#include "base/dtype_switch.h"
#include "device/launch_sm90.cuh"
#include "kernels/moe/grouped_tile_sm90.cuh"
#include "kernels/rows/swiglu_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kFewWarps = 8;
constexpr int kFewRows = 8;           // of a group, that share what a warp reads of a weight
constexpr int kFewBlocksOfSm = 4;     // that go from pair to pair: a block's start takes as long as a pair
constexpr int kFewRowsOnAverage = 4;  // with more, multiplications would take longer than memory (estimated)

enum class GroupedOutput { sums, swiglu };

template <class T>
struct FewOperands {
  const T* x;
  T* y;
  std::int64_t x_stride, y_stride;
  const std::int32_t* token_of;  // null: row r of the groups is row r of x
  const void* const* table;
  const std::int32_t* first_row;
  int count;
  std::int64_t in_features, pairs;  // pairs of rows of a weight
};

// Weights are read once and written by no kernel.
template <class T>
__device__ RawPack<T> load_streamed(const T* from) {
  static_assert(sizeof(T) == 2);
  RawPack<T> raw;
  uint4& v = raw.words[0];
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return raw;
}

// kRows rows of a group from `first` on, which all exist. A lane takes every 32nd pack in order; then lanes are added.
template <int kRows, GroupedOutput kOutput, class T>
__device__ void multiply_pair(const FewOperands<T>& op, const T* weight, std::int64_t pair, std::int64_t first) {
  constexpr int kAtOnce = kRows <= 4 ? 4 : 2;  // packs of each row of the weight in flight
  constexpr int kStep = 32 * kPackElements;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const T* rows_of_weight[2] = {
      weight + (kOutput == GroupedOutput::swiglu ? pair : 2 * pair) * op.in_features,
      weight + (kOutput == GroupedOutput::swiglu ? op.pairs + pair : 2 * pair + 1) * op.in_features};
  const T* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    x[r] = op.x + (op.token_of == nullptr ? first + r : std::int64_t{op.token_of[first + r]}) * op.x_stride;
  float sums[2][kRows] = {};
  for (std::int64_t from = lane * kPackElements; from < op.in_features; from += kAtOnce * kStep) {
    RawPack<T> raw[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int w = 0; w < 2; ++w)
        if (from + i * kStep < op.in_features) raw[i][w] = load_streamed(rows_of_weight[w] + from + i * kStep);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (from + i * kStep >= op.in_features) break;
      const Pack weights[2] = {unpack(raw[i][0]), unpack(raw[i][1])};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Pack values = load_pack(x[r] + from + i * kStep);
#pragma unroll
        for (int w = 0; w < 2; ++w)
#pragma unroll
          for (int e = 0; e < kPackElements; ++e) sums[w][r] = fmaf(values.values[e], weights[w].values[e], sums[w][r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int w = 0; w < 2; ++w)
      for (int distance = 16; distance > 0; distance /= 2) sums[w][r] += __shfl_xor_sync(~0u, sums[w][r], distance);
    if (lane != 0) continue;
    T* const y = op.y + (first + r) * op.y_stride;
    if constexpr (kOutput == GroupedOutput::swiglu) {
      y[pair] = sm90::rounded<T>(gated(sums[0][r], sums[1][r], T{}));
    } else {
      y[2 * pair] = sm90::rounded<T>(sums[0][r]);
      y[2 * pair + 1] = sm90::rounded<T>(sums[1][r]);
    }
  }
}

// A row's bits do not depend on how many there are.
template <GroupedOutput kOutput, class T>
__device__ void multiply_tile(const FewOperands<T>& op, const GroupTile& tile, std::int64_t pair) {
  const auto* weight = static_cast<const T*>(op.table[tile.group]);
  int first = tile.first, rows = tile.rows;
  if (rows == 8) return multiply_pair<8, kOutput>(op, weight, pair, first);
  if (rows >= 4) {
    multiply_pair<4, kOutput>(op, weight, pair, first);
    first += 4;
    rows -= 4;
  }
  if (rows >= 2) {
    multiply_pair<2, kOutput>(op, weight, pair, first);
    first += 2;
    rows -= 2;
  }
  if (rows == 1) multiply_pair<1, kOutput>(op, weight, pair, first);
}

template <GroupedOutput kOutput, class T>
__global__ void __launch_bounds__(kFewWarps * 32) multiply_few(const __grid_constant__ FewOperands<T> op) {
  wait_for_earlier_kernels();
  let_later_kernels_start();
  for (int at = static_cast<int>(blockIdx.y);; at += static_cast<int>(gridDim.y)) {
    const GroupTile tile = find_group_tile<kFewRows>(op.first_row, op.count, at);
    if (tile.rows == 0) return;
    for (std::int64_t pair = std::int64_t{blockIdx.x} * kFewWarps + threadIdx.x / 32; pair < op.pairs;
         pair += std::int64_t{gridDim.x} * kFewWarps)
      multiply_tile<kOutput>(op, tile, pair);
  }
}

template <GroupedOutput kOutput>
void enqueue_few(const GroupedLinearParams& params, const Tensor& x, const std::int32_t* token_of, const Tensor& y,
                 const Lane& lane) {
  const Weight& weight = params.group.weights[0];
  const std::int64_t pairs = weight.out_features / 2, rows = y.rows;
  const std::int64_t tiles = most_group_tiles<kFewRows>(rows, params.group.count);
  const std::int64_t enough =
      ceil_div<std::int64_t>(std::int64_t{lane.num_sms} * kFewBlocksOfSm, std::max<std::int64_t>(tiles, 1));
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(std::min(ceil_div<std::int64_t>(pairs, kFewWarps), enough)),
                   static_cast<unsigned>(std::min<std::int64_t>(tiles, 65535))),
      .block = kFewWarps * 32,
      .fit = GridFit::trimmed};
  with_16_bit_element(weight.dtype, [&]<class T>() {
    const FewOperands<T> op{.x = static_cast<const T*>(x.data),
                            .y = static_cast<T*>(y.data),
                            .x_stride = x.row_stride,
                            .y_stride = y.row_stride,
                            .token_of = token_of,
                            .table = params.group.table,
                            .first_row = params.first_row,
                            .count = params.group.count,
                            .in_features = weight.in_features,
                            .pairs = pairs};
    launch_sm90("grouped_linear", multiply_few<kOutput, T>, shape, lane, op);
  });
}

// x: what is multiplied.
bool takes_few(const GroupedLinearParams& params, const Tensor& x, const Tensor& y) {
  const Weight& weight = params.group.weights[0];
  const auto is_packed = [](const Weight& one) { return rows_are_aligned(one); };
  return x.dtype == weight.dtype && y.dtype == weight.dtype && size_of(weight.dtype) == 2 && takes_packs(x) &&
         weight.out_features % 2 == 0 && y.rows <= std::int64_t{kFewRowsOnAverage} * params.group.count &&
         std::all_of(params.group.weights, params.group.weights + params.group.count, is_packed);
}

}  // namespace

bool plain_is_faster(const GroupedLinearParams& params) {
  constexpr std::size_t kLargeWeight = std::size_t{64} << 20;
  return params.group.weights[0].size_bytes() > kLargeWeight &&
         params.y.rows <= std::int64_t{kFewRowsOnAverage} * params.group.count;
}

bool grouped_few_takes(const GroupedLinearParams& params) {
  return takes_few(params, params.x, params.y);
}

bool grouped_swiglu_few_takes(const GroupedSwigluParams& params) {
  return takes_few(params.gate_up, params.x, params.y);
}

void grouped_few(const GroupedLinearParams& params, const Lane& lane) {
  enqueue_few<GroupedOutput::sums>(params, params.x, nullptr, params.y, lane);
}

void grouped_swiglu_few(const GroupedSwigluParams& params, const Lane& lane) {
  enqueue_few<GroupedOutput::swiglu>(params.gate_up, params.x, params.token_of, params.y, lane);
}

}  // namespace heddle
