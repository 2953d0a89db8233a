// A unit is what is normalized by itself: a token, or a head of one. Its threads hold it in registers, so memory is
// read once. A thread has one pack of eight elements where units are few, which minimizes latency. It has four packs
// where units are many: more loads are in flight, and blocks loop over units and keep their weights.
//
// The order of a sum depends on `hidden` alone: the squares of a pack in order; 32 packs, a group, by a tree; the
// groups in order. Packs past the end are zeros and change nothing.
#include <algorithm>

#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/rows/rmsnorm_sm90.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kGroupPacks = 32;
constexpr int kSmallBlock = 128;     // threads, for units of at most one group
constexpr int kManyPacks = 4;        // per thread
constexpr int kManyRegisters = 128;  // the most per thread with four packs: so many fit an SM's 65536

constexpr int most_threads(int packs) {
  return packs == 1 ? 1024 : 512;
}

// The mapping of units to threads. A unit of at most one group takes a power of two of threads and shares its block;
// others take whole warps. The host computes it, so that a thread knows its place before the kernel ahead has ended.
struct UnitShape {
  int hidden = 0;
  int threads = 1;
  int units_a_block = 1;
  bool groups = false;  // more than one
  unsigned heads = 1;   // per token
  unsigned units = 0;
  unsigned blocks = 0;  // for all units
};

UnitShape unit_shape(const RmsNormParams& params, int packs_of_thread) {
  const std::int64_t hidden = params.x.columns / params.num_heads;
  const std::int64_t packs = ceil_div<std::int64_t>(hidden, kPackElements);
  const std::int64_t threads = ceil_div<std::int64_t>(packs, packs_of_thread);
  UnitShape shape{.hidden = static_cast<int>(hidden),
                  .groups = packs > kGroupPacks,
                  .heads = static_cast<unsigned>(params.num_heads),
                  .units = static_cast<unsigned>(params.x.rows * params.num_heads)};
  if (shape.groups) {
    shape.threads = static_cast<int>(round_up<std::int64_t>(threads, 32));
  } else {
    while (shape.threads < threads) shape.threads *= 2;
    shape.units_a_block = kSmallBlock / shape.threads;
  }
  const auto units_a_block = static_cast<unsigned>(shape.units_a_block);
  shape.blocks = ceil_div(shape.units, units_a_block);
  return shape;
}

// The unit that a thread works on, and its place in it. A thread of the last block without a unit takes the first one,
// so that its loads are valid.
struct Place {
  __device__ Place(const UnitShape& shape, unsigned block) {
    const unsigned unit = shape.units_a_block == 1
                              ? block
                              : block * shape.units_a_block + threadIdx.x / static_cast<unsigned>(shape.threads);
    there = unit < shape.units;
    const unsigned row = !there ? 0 : shape.heads == 1 ? unit : unit / shape.heads;
    token = row;
    start = there ? static_cast<int>((unit - row * shape.heads) * static_cast<unsigned>(shape.hidden)) : 0;
  }

  bool there;
  std::int64_t token;
  int start;
};

__device__ float sum_of_lanes(float sum, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, distance));
  return sum;
}

// In order, four at a time; what lies past the last group is 0.
__device__ float sum_of_groups(const float* groups, int count) {
  float sum = 0;
  for (int i = 0; i < count; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(groups + i);
    sum = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(sum, four.x), four.y), four.z), four.w);
  }
  return sum;
}

// Reduces a unit's sums of packs over its threads; all threads of the block call it. `groups` is used by this call
// only, and may be reused by the next call but one.
template <int kPacks>
__device__ float sum_of_unit(const float (&packs)[kPacks], const UnitShape& shape, float* groups) {
  if (!shape.groups) {
    // Adds packs p and p + 2 of a thread first: they are as far apart as lanes that the tree would add first.
    if constexpr (kPacks == 4)
      return sum_of_lanes(__fadd_rn(__fadd_rn(packs[0], packs[2]), __fadd_rn(packs[1], packs[3])), shape.threads);
    else
      return sum_of_lanes(packs[0], shape.threads);
  }
  const int warps = shape.threads / 32;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const float sum = sum_of_lanes(packs[p], 32);
    if (threadIdx.x % 32 == 0) groups[p * warps + static_cast<int>(threadIdx.x / 32)] = sum;
  }
  __syncthreads();
  return sum_of_groups(groups, kPacks * warps);
}

__device__ float squares_of(const Pack& z) {
  float sum = 0;
#pragma unroll
  for (float value : z.values) sum = __fmaf_rn(value, value, sum);
  return sum;
}

__device__ float factor_of(float squares, std::int64_t hidden, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, static_cast<float>(hidden)), eps)));
}

template <class X, class Residual, class Y, int kPacks>
__global__ void __launch_bounds__(most_threads(kPacks))
    rmsnorm_packs(const __grid_constant__ RmsNormParams params, const UnitShape shape) {
  __shared__ __align__(16) float groups[2][most_threads(kPacks) / 32 * kPacks];
  const int hidden = shape.hidden;
  bool filled[kPacks];  // whether this pack of the thread lies in the unit
  int columns[kPacks];  // of the pack; of the first one, where the pack lies outside
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int thread = static_cast<int>(threadIdx.x) & (shape.groups ? ~0 : shape.threads - 1);
    const int column = (p * shape.threads + thread) * kPackElements;
    filled[p] = column < hidden;
    columns[p] = filled[p] ? column : 0;
  }
  if (threadIdx.x < most_threads(kPacks) / 32 * kPacks) groups[0][threadIdx.x] = groups[1][threadIdx.x] = 0;
  if (shape.groups) __syncthreads();

  let_later_kernels_start();
  RawPack<float> weight[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) weight[p] = load_raw(static_cast<const float*>(params.weight) + columns[p]);
  const bool adds = params.residual.data != nullptr;
  unsigned block = blockIdx.x;
  Place at(shape, block);
  // Before the wait, so that the first access to the parameters overlaps it.
  const X* x = element<const X>(params.x, at.token, at.start);
  Residual* residual = element<Residual>(params.residual, at.token, at.start);
  Y* y = element<Y>(params.y, at.token, at.start);
  wait_for_earlier_kernels();

  for (int turn = 0;; turn ^= 1) {
    RawPack<X> raw_x[kPacks];
    RawPack<Residual> raw_residual[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) raw_x[p] = load_raw(x + columns[p]);
    if (adds) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) raw_residual[p] = load_raw(residual + columns[p]);
    }
    Pack z[kPacks];
    float squares[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      z[p] = unpack(raw_x[p]);
      if (adds) {
        const Pack before = unpack(raw_residual[p]);
#pragma unroll
        for (int i = 0; i < kPackElements; ++i) z[p].values[i] += before.values[i];
        if (kPacks > 1 && at.there && filled[p]) store_pack(residual + columns[p], z[p]);
      }
      squares[p] = filled[p] ? squares_of(z[p]) : 0.0f;
    }
    const float factor = factor_of(sum_of_unit<kPacks>(squares, shape, groups[turn]), hidden, params.eps);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const Pack weights = unpack(weight[p]);
      Pack normed;
#pragma unroll
      for (int i = 0; i < kPackElements; ++i) normed.values[i] = z[p].values[i] * factor * weights.values[i];
      if (at.there && filled[p]) store_pack(y + columns[p], normed);
      // After y where a lane has one pack: half a microsecond faster in a step of a small model
      // (docs/notes/linear_gpu.md).
      if (kPacks == 1 && adds && at.there && filled[p]) store_pack(residual + columns[p], z[p]);
    }
    block += gridDim.x;
    if (block >= shape.blocks) return;
    at = Place(shape, block);
    x = element<const X>(params.x, at.token, at.start);
    residual = element<Residual>(params.residual, at.token, at.start);
    y = element<Y>(params.y, at.token, at.start);
  }
}

// Any alignment, length and mix of dtypes: the unit is kept in shared memory. The same sums in the same order.
__global__ void __launch_bounds__(1024)
    rmsnorm_elements(const __grid_constant__ RmsNormParams params, const UnitShape shape) {
  extern __shared__ __align__(16) float elements_of_units[];
  constexpr int kMostGroups = kMostRmsNormHidden / (kGroupPacks * kPackElements);
  __shared__ __align__(16) float groups[kMostGroups];
  Place at(shape, blockIdx.x);
  const std::int64_t hidden = shape.hidden;
  const int thread = static_cast<int>(threadIdx.x) % shape.threads;
  float* z = elements_of_units + threadIdx.x / shape.threads * hidden;
  // Calls f(column) for the elements of the pack.
  const auto each = [&](std::int64_t pack, auto f) {
    const std::int64_t first = pack * kPackElements;
    for (std::int64_t column = first; column < first + kPackElements && column < hidden && at.there; ++column)
      f(column);
  };
  for (int i = threadIdx.x; i < kMostGroups; i += blockDim.x) groups[i] = 0;
  __syncthreads();

  let_later_kernels_start();
  wait_for_earlier_kernels();
  for (unsigned block = blockIdx.x; block < shape.blocks; block += gridDim.x) {
    at = Place(shape, block);
    float squares = 0;
    for (int first = 0; first * kPackElements < hidden; first += shape.threads) {
      squares = 0;
      each(first + thread, [&](std::int64_t column) {
        float value = load_element(params.x.data, at.token * params.x.row_stride + at.start + column, params.x.dtype);
        if (params.residual.data != nullptr) {
          const std::int64_t place = at.token * params.residual.row_stride + at.start + column;
          value += load_element(params.residual.data, place, params.residual.dtype);
          store_element(params.residual.data, place, params.residual.dtype, value);
        }
        z[column] = value;
        squares = __fmaf_rn(value, value, squares);
      });
      squares = sum_of_lanes(squares, shape.groups ? 32 : shape.threads);
      const int group = (first + thread) / kGroupPacks;
      if (shape.groups && threadIdx.x % 32 == 0 && group < kMostGroups) groups[group] = squares;
    }
    __syncthreads();
    if (shape.groups) squares = sum_of_groups(groups, kMostGroups);
    const float factor = factor_of(squares, hidden, params.eps);
    for (int first = 0; first * kPackElements < hidden; first += shape.threads)
      each(first + thread, [&](std::int64_t column) {
        store_element(params.y.data, at.token * params.y.row_stride + at.start + column, params.y.dtype,
                      z[column] * factor * static_cast<const float*>(params.weight)[column]);
      });
    __syncthreads();  // before the next unit's groups
  }
}

void launch_elements(const RmsNormParams& params, const Lane& lane) {
  UnitShape unit = unit_shape(params, 1);
  if (unit.threads > most_threads(1)) unit.threads = most_threads(1);
  launch_sm90("rmsnorm", rmsnorm_elements,
              {.grid = dim3(unit.blocks),
               .block = dim3(static_cast<unsigned>(unit.threads * unit.units_a_block)),
               .shared_bytes = static_cast<std::size_t>(unit.hidden * unit.units_a_block) * sizeof(float),
               .fit = GridFit::trimmed},
              lane, params, unit);
}

template <class X, class Residual, class Y>
void launch_packs(const RmsNormParams& params, const Lane& lane) {
  const UnitShape few = unit_shape(params, 1), lots = unit_shape(params, kManyPacks);
  const bool many = few.threads > most_threads(1) || lots.blocks >= 2 * static_cast<unsigned>(lane.num_sms);
  const UnitShape& unit = many ? lots : few;
  const int threads = unit.threads * unit.units_a_block;
  const int at_once = std::max(1, 65536 / (kManyRegisters * threads)) * lane.num_sms;
  launch_sm90("rmsnorm", many ? rmsnorm_packs<X, Residual, Y, kManyPacks> : rmsnorm_packs<X, Residual, Y, 1>,
              {.grid = dim3(many ? std::min(unit.blocks, static_cast<unsigned>(at_once)) : unit.blocks),
               .block = dim3(static_cast<unsigned>(threads)),
               .fit = GridFit::trimmed},
              lane, params, unit);
}

// The mixes that models use: all float32; a float32 residual with 16-bit input, output or both; all of 16 bits.
template <class Half>
void launch_mix(const RmsNormParams& params, const Lane& lane) {
  const auto is_half = [](const Tensor& tensor) { return tensor.dtype != DType::float32; };
  const bool x = is_half(params.x), y = is_half(params.y);
  if (params.residual.data != nullptr && is_half(params.residual)) {
    if (x && y) return launch_packs<Half, Half, Half>(params, lane);
    return launch_elements(params, lane);
  }
  if (x && y) return launch_packs<Half, float, Half>(params, lane);
  if (x) return launch_packs<Half, float, float>(params, lane);
  if (y) return launch_packs<float, float, Half>(params, lane);
  launch_packs<float, float, float>(params, lane);
}

}  // namespace

void rmsnorm_sm90(const RmsNormParams& params, const Lane& lane) {
  const std::int64_t hidden = params.x.columns / params.num_heads;
  const bool packs = hidden % kPackElements == 0 && takes_packs(params.x) && takes_packs(params.y) &&
                     is_aligned(params.weight) && (params.residual.data == nullptr || takes_packs(params.residual)) &&
                     unit_shape(params, kManyPacks).threads <= most_threads(kManyPacks);
  if (!packs) return launch_elements(params, lane);
  const auto is_float16 = [](const Tensor& tensor) { return tensor.data != nullptr && tensor.dtype == DType::float16; };
  if (is_float16(params.x) || is_float16(params.residual) || is_float16(params.y))
    return launch_mix<float16>(params, lane);
  launch_mix<bfloat16>(params, lane);
}

}  // namespace heddle
