#include "weights/synthetic_fill.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/cuda_call.h"

namespace heddle::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::uint64_t kMaxBlocks = 132 * 32;  // enough to fill the largest GPU; each walks on from there

// synthetic_value(), with nothing fused.
__device__ float value_at(const SyntheticTensor& tensor, std::uint64_t index) {
  const float product = __fmul_rn(tensor.scale, static_cast<float>(synthetic_integer(tensor.key, index)));
  return __fadd_rn(tensor.offset, product);
}

__device__ float rounded_to(DType dtype, float value) {
  if (dtype == DType::bfloat16) return __bfloat162float(__float2bfloat16_rn(value));
  if (dtype == DType::float16) return __half2float(__float2half_rn(value));
  return value;
}

__device__ void store(DType dtype, float value, void* destination, std::uint64_t i) {
  if (dtype == DType::bfloat16)
    static_cast<__nv_bfloat16*>(destination)[i] = __float2bfloat16_rn(value);
  else if (dtype == DType::float16)
    static_cast<__half*>(destination)[i] = __float2half_rn(value);
  else
    static_cast<float*>(destination)[i] = value;
}

__global__ void fill(const __grid_constant__ SyntheticTensor tensor, std::uint64_t first, std::uint64_t count,
                     DType stored, DType dtype, void* destination) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride)
    store(dtype, rounded_to(stored, value_at(tensor, first + i)), destination, i);
}

__global__ void fill_columns(const __grid_constant__ SyntheticTensor tensor,
                             const __grid_constant__ SyntheticColumns part, DType stored, DType dtype,
                             void* destination) {
  for (std::uint64_t row = blockIdx.x; row < part.rows; row += gridDim.x)
    for (std::uint64_t column = threadIdx.x; column < part.columns; column += kThreads) {
      const float value = value_at(tensor, part.first + row * part.row_stride + column);
      store(dtype, rounded_to(stored, value), destination, row * part.columns + column);
    }
}

void check_launch(const Stream& stream) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw_cuda_error(fmt::format("making weights on {}", name_of(stream.device())), error);
}

}  // namespace

void fill_synthetic(const SyntheticTensor& tensor, std::uint64_t first, std::size_t count, DType stored, DType dtype,
                    void* destination, Stream& stream) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>((count + kThreads - 1) / kThreads, kMaxBlocks));
  const CurrentDevice current(stream.device().index);
  // Without device/launch_sm90.cuh, which weights may not include: no step runs beside this kernel.
  fill<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(tensor, first, count, stored, dtype,
                                                                            destination);
  check_launch(stream);
}

void fill_synthetic_columns(const SyntheticTensor& tensor, const SyntheticColumns& part, DType stored, DType dtype,
                            void* destination, Stream& stream) {
  if (part.rows == 0 || part.columns == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(part.rows, kMaxBlocks));
  const CurrentDevice current(stream.device().index);
  fill_columns<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(tensor, part, stored, dtype,
                                                                                    destination);
  check_launch(stream);
}

}  // namespace heddle::cuda
