// A unit is what is normalised by itself: a token, or a head of one. Its threads hold it in registers, four packs of
// eight each, so memory is read once; blocks go from unit to unit and keep their weights. How many threads a unit has
// depends on `hidden` alone, and so does the order of its sum: a thread adds up the squares of each pack in order, then
// its packs, the lanes of a warp are halved, and warps are added in order.
#include "kernels/elements_sm90.cuh"
#include "kernels/launch_sm90.cuh"
#include "kernels/rmsnorm_sm90.h"

namespace heddle {
namespace {

constexpr int kSmallBlock = 128;   // threads, where a unit takes a warp or less
constexpr int kMostThreads = 512;  // of a unit
constexpr int kPacks = 4;          // of a thread, where they fit: many loads on their way, few threads to add up
constexpr int kBlocksOfMultiprocessor = 6;

struct UnitShape {
  int threads = 1;     // of a unit: a power of two up to 32, or a multiple of 32
  int packs = kPacks;  // of a thread
  int units_a_block = 1;
};

UnitShape unit_shape(std::int64_t hidden) {
  const std::int64_t packs = (hidden + kPackElements - 1) / kPackElements, threads = (packs + kPacks - 1) / kPacks;
  UnitShape shape;
  if (threads <= 32) {
    while (shape.threads < threads) shape.threads *= 2;
    shape.units_a_block = kSmallBlock / shape.threads;
    return shape;
  }
  shape.threads = static_cast<int>(threads < kMostThreads ? (threads + 31) / 32 * 32 : kMostThreads);
  shape.packs = static_cast<int>((packs + shape.threads - 1) / shape.threads);
  if (shape.packs < kPacks) shape.packs = kPacks;
  return shape;
}

// The unit that a thread works on, and its place there.
struct Place {
  __device__ Place(const RmsNormParams& params, const UnitShape& shape, std::int64_t block)
      : hidden(params.x.columns / params.num_heads), thread(static_cast<int>(threadIdx.x) % shape.threads) {
    const std::int64_t unit = block * shape.units_a_block + threadIdx.x / shape.threads;
    there = unit < params.x.rows * params.num_heads;
    token = unit / params.num_heads;
    start = (unit - token * params.num_heads) * hidden;
  }

  std::int64_t hidden;
  int thread;
  bool there;  // else the block is the last and has no unit for this thread
  std::int64_t token, start;
};

// The sum over the threads of a unit; all threads of the block call it. `warp_sums`: of this call alone until the next
// but one.
__device__ float sum_of_unit(float sum, int threads, float* warp_sums) {
  for (int distance = (threads < 32 ? threads : 32) / 2; distance > 0; distance /= 2)
    sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, distance));
  if (threads <= 32) return sum;
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = warp_sums[0];
  for (int warp = 1; warp < threads / 32; ++warp) sum = __fadd_rn(sum, warp_sums[warp]);
  return sum;
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

template <class X, class Residual, class Y>
__global__ void __launch_bounds__(kMostThreads)
    rmsnorm_packs(const __grid_constant__ RmsNormParams params, const UnitShape shape) {
  __shared__ float warp_sums[2][kMostThreads / 32];
  const std::int64_t hidden = params.x.columns / params.num_heads;
  const int thread = static_cast<int>(threadIdx.x) % shape.threads;
  const auto column = [&](int pack) { return std::int64_t{pack * shape.threads + thread} * kPackElements; };

  let_later_kernels_start();
  Pack weight[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (column(p) < hidden) weight[p] = load_pack(static_cast<const float*>(params.weight) + column(p));
  wait_for_earlier_kernels();

  const std::int64_t blocks = (params.x.rows * params.num_heads + shape.units_a_block - 1) / shape.units_a_block;
  int turn = 0;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x, turn ^= 1) {
    const Place at(params, shape, block);
    Pack z[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (at.there && column(p) < hidden) z[p] = load_pack(element<const X>(params.x, at.token, at.start + column(p)));
    if (params.residual.data != nullptr) {
      Pack residual[kPacks];
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
        if (at.there && column(p) < hidden)
          residual[p] = load_pack(element<const Residual>(params.residual, at.token, at.start + column(p)));
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
        if (at.there && column(p) < hidden) {
#pragma unroll
          for (int i = 0; i < kPackElements; ++i) z[p].values[i] += residual[p].values[i];
          store_pack(element<Residual>(params.residual, at.token, at.start + column(p)), z[p]);
        }
    }
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (at.there && column(p) < hidden) squares = __fadd_rn(squares, squares_of(z[p]));
    const float factor = factor_of(sum_of_unit(squares, shape.threads, warp_sums[turn]), hidden, params.eps);
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (at.there && column(p) < hidden) {
#pragma unroll
        for (int i = 0; i < kPackElements; ++i) z[p].values[i] = z[p].values[i] * factor * weight[p].values[i];
        store_pack(element<Y>(params.y, at.token, at.start + column(p)), z[p]);
      }
  }
}

// Any alignment and length: the unit waits in shared memory. The same sums in the same order.
__global__ void __launch_bounds__(kMostThreads)
    rmsnorm_elements(const __grid_constant__ RmsNormParams params, const UnitShape shape) {
  extern __shared__ float units[];
  __shared__ float warp_sums[kMostThreads / 32];
  const Place at(params, shape, blockIdx.x);
  float* z = units + threadIdx.x / shape.threads * at.hidden;
  // Calls f(column) for the pack's elements.
  const auto each = [&](int pack, auto f) {
    const std::int64_t first = std::int64_t{pack * shape.threads + at.thread} * kPackElements;
    for (std::int64_t column = first; column < first + kPackElements && column < at.hidden && at.there; ++column)
      f(column);
  };

  let_later_kernels_start();
  wait_for_earlier_kernels();
  float squares = 0;
  for (int pack = 0; pack < shape.packs; ++pack) {
    float squares_of_pack = 0;
    each(pack, [&](std::int64_t column) {
      float value = load_element(params.x.data, at.token * params.x.row_stride + at.start + column, params.x.dtype);
      if (params.residual.data != nullptr) {
        const std::int64_t place = at.token * params.residual.row_stride + at.start + column;
        value += load_element(params.residual.data, place, params.residual.dtype);
        store_element(params.residual.data, place, params.residual.dtype, value);
      }
      z[column] = value;
      squares_of_pack = __fmaf_rn(value, value, squares_of_pack);
    });
    squares = __fadd_rn(squares, squares_of_pack);
  }
  const float factor = factor_of(sum_of_unit(squares, shape.threads, warp_sums), at.hidden, params.eps);
  for (int pack = 0; pack < shape.packs; ++pack)
    each(pack, [&](std::int64_t column) {
      store_element(params.y.data, at.token * params.y.row_stride + at.start + column, params.y.dtype,
                    z[column] * factor * static_cast<const float*>(params.weight)[column]);
    });
}

// Calls f with values of the types of x, residual and y, of which at most one is 16 bits wide.
template <class Half, class F>
void with_types(const RmsNormParams& params, F f) {
  const auto with = [](DType dtype, auto g) {
    if (dtype == DType::float32) return g(float{});
    g(Half{});
  };
  with(params.x.dtype, [&](auto x) {
    with(params.residual.data != nullptr ? params.residual.dtype : DType::float32,
         [&](auto residual) { with(params.y.dtype, [&](auto y) { f(x, residual, y); }); });
  });
}

}  // namespace

void rmsnorm_sm90(const RmsNormParams& params, Stream& stream) {
  const std::int64_t hidden = params.x.columns / params.num_heads;
  const UnitShape unit = unit_shape(hidden);
  const std::int64_t blocks = (params.x.rows * params.num_heads + unit.units_a_block - 1) / unit.units_a_block;
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)),
                    .block = dim3(static_cast<unsigned>(unit.threads * unit.units_a_block))};
  const bool packs = hidden % kPackElements == 0 && takes_packs(params.x) && takes_packs(params.y) &&
                     takes_packs(params.weight, 0, DType::float32) &&
                     (params.residual.data == nullptr || takes_packs(params.residual)) && unit.packs == kPacks;
  if (!packs) {
    shape.shared_bytes =
        static_cast<std::size_t>(hidden) * static_cast<std::size_t>(unit.units_a_block) * sizeof(float);
    return launch_sm90("rmsnorm", rmsnorm_elements, shape, stream, params, unit);
  }
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, stream.device().index);
  const auto most = static_cast<unsigned>(kBlocksOfMultiprocessor * multiprocessors);
  if (multiprocessors > 0 && shape.grid.x > most) shape.grid.x = most;
  const auto launch = [&](auto x, auto residual, auto y) {
    using X = decltype(x);
    using R = decltype(residual);
    using Y = decltype(y);
    launch_sm90("rmsnorm", rmsnorm_packs<X, R, Y>, shape, stream, params, unit);
  };
  const auto is_float16 = [](const Tensor& tensor) { return tensor.data != nullptr && tensor.dtype == DType::float16; };
  if (is_float16(params.x) || is_float16(params.residual) || is_float16(params.y))
    return with_types<float16>(params, launch);
  with_types<bfloat16>(params, launch);
}

}  // namespace heddle
