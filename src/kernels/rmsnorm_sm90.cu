// A unit is what is normalised by itself: a token, or a head of one. Its threads hold it in registers, packs of eight
// in turn, so memory is read once. How many threads a unit has depends on `hidden` alone, and so does the order of its
// sum: each thread adds its squares in order, the lanes of a warp are halved, and warps are added in order.
#include "kernels/elements_sm90.cuh"
#include "kernels/launch_sm90.cuh"
#include "kernels/rmsnorm_sm90.h"

namespace heddle {
namespace {

constexpr int kSmallBlock = 128;  // threads, where a unit takes a warp or less
constexpr int kMostThreads = 1024;
constexpr int kMostWarps = kMostThreads / 32;

struct UnitShape {
  int threads = 1;  // of a unit: a power of two up to 32, or a multiple of 32
  int packs = 1;    // of a thread
  int units_a_block = 1;
};

UnitShape unit_shape(std::int64_t hidden) {
  const std::int64_t packs = (hidden + kPackElements - 1) / kPackElements;
  UnitShape shape;
  if (packs <= 32) {
    while (shape.threads < packs) shape.threads *= 2;
    shape.units_a_block = kSmallBlock / shape.threads;
    return shape;
  }
  shape.threads = static_cast<int>(packs < kMostThreads ? (packs + 31) / 32 * 32 : kMostThreads);
  shape.packs = static_cast<int>((packs + shape.threads - 1) / shape.threads);
  return shape;
}

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

__device__ float add_squares(float sum, const Pack& z) {
#pragma unroll
  for (float value : z.values) sum = __fmaf_rn(value, value, sum);
  return sum;
}

__device__ float factor_of(float squares, std::int64_t hidden, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, static_cast<float>(hidden)), eps)));
}

template <class X, class Residual, class Y, int kPacks>
__global__ void __launch_bounds__(kMostThreads)
    rmsnorm_packs(const __grid_constant__ RmsNormParams params, const UnitShape shape) {
  __shared__ float warp_sums[kMostWarps];
  const std::int64_t hidden = params.x.columns / params.num_heads;
  const int thread = static_cast<int>(threadIdx.x) % shape.threads;
  const std::int64_t unit = std::int64_t{blockIdx.x} * shape.units_a_block + threadIdx.x / shape.threads;
  const bool there = unit < params.x.rows * params.num_heads;
  const std::int64_t token = unit / params.num_heads, start = (unit - token * params.num_heads) * hidden;
  const auto column = [&](int pack) { return std::int64_t{pack * shape.threads + thread} * kPackElements; };

  let_later_kernels_start();
  Pack weight[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (column(p) < hidden) weight[p] = load_pack(static_cast<const float*>(params.weight) + column(p));
  wait_for_earlier_kernels();

  Pack z[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (there && column(p) < hidden) z[p] = load_pack(element<const X>(params.x, token, start + column(p)));
  if (params.residual.data != nullptr) {
    Pack residual[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (there && column(p) < hidden)
        residual[p] = load_pack(element<const Residual>(params.residual, token, start + column(p)));
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (there && column(p) < hidden) {
#pragma unroll
        for (int i = 0; i < kPackElements; ++i) z[p].values[i] += residual[p].values[i];
        store_pack(element<Residual>(params.residual, token, start + column(p)), z[p]);
      }
  }
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (there && column(p) < hidden) squares = add_squares(squares, z[p]);
  const float factor = factor_of(sum_of_unit(squares, shape.threads, warp_sums), hidden, params.eps);
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (there && column(p) < hidden) {
#pragma unroll
      for (int i = 0; i < kPackElements; ++i) z[p].values[i] = z[p].values[i] * factor * weight[p].values[i];
      store_pack(element<Y>(params.y, token, start + column(p)), z[p]);
    }
}

// Any alignment and length: the unit waits in shared memory. The same sums in the same order.
__global__ void __launch_bounds__(kMostThreads)
    rmsnorm_elements(const __grid_constant__ RmsNormParams params, const UnitShape shape) {
  extern __shared__ float units[];
  __shared__ float warp_sums[kMostWarps];
  const std::int64_t hidden = params.x.columns / params.num_heads;
  const int thread = static_cast<int>(threadIdx.x) % shape.threads;
  const std::int64_t unit = std::int64_t{blockIdx.x} * shape.units_a_block + threadIdx.x / shape.threads;
  const bool there = unit < params.x.rows * params.num_heads;
  const std::int64_t token = unit / params.num_heads, start = (unit - token * params.num_heads) * hidden;
  float* z = units + threadIdx.x / shape.threads * hidden;
  const auto each = [&](auto f) {
    if (!there) return;
    for (int p = 0; p < shape.packs; ++p)
      for (int i = 0; i < kPackElements; ++i) {
        const std::int64_t column = std::int64_t{p * shape.threads + thread} * kPackElements + i;
        if (column < hidden) f(column);
      }
  };

  let_later_kernels_start();
  wait_for_earlier_kernels();
  float squares = 0;
  each([&](std::int64_t column) {
    float value = load_element(params.x.data, token * params.x.row_stride + start + column, params.x.dtype);
    if (params.residual.data != nullptr) {
      const std::int64_t at = token * params.residual.row_stride + start + column;
      value += load_element(params.residual.data, at, params.residual.dtype);
      store_element(params.residual.data, at, params.residual.dtype, value);
    }
    z[column] = value;
    squares = __fmaf_rn(value, value, squares);
  });
  const float factor = factor_of(sum_of_unit(squares, shape.threads, warp_sums), hidden, params.eps);
  each([&](std::int64_t column) {
    store_element(params.y.data, token * params.y.row_stride + start + column, params.y.dtype,
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
                     (params.residual.data == nullptr || takes_packs(params.residual)) && unit.packs <= 2;
  if (!packs) {
    shape.shared_bytes =
        static_cast<std::size_t>(hidden) * static_cast<std::size_t>(unit.units_a_block) * sizeof(float);
    return launch_sm90("rmsnorm", rmsnorm_elements, shape, stream, params, unit);
  }
  const auto launch = [&](auto x, auto residual, auto y) {
    using X = decltype(x);
    using R = decltype(residual);
    using Y = decltype(y);
    launch_sm90("rmsnorm", unit.packs == 1 ? rmsnorm_packs<X, R, Y, 1> : rmsnorm_packs<X, R, Y, 2>, shape, stream,
                params, unit);
  };
  const auto is_float16 = [](const Tensor& tensor) { return tensor.data != nullptr && tensor.dtype == DType::float16; };
  if (is_float16(params.x) || is_float16(params.residual) || is_float16(params.y))
    return with_types<float16>(params, launch);
  with_types<bfloat16>(params, launch);
}

}  // namespace heddle
