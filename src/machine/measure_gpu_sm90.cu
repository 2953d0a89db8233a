#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/cuda_call.h"
#include "machine/measure_gpu.h"

namespace heddle {
namespace {

constexpr int kProbeThreads = 1024;
constexpr int kProbeUnroll = 4;  // loads in flight per thread: 128 KiB per SM

void check_probe(cudaError_t error) {
  if (error != cudaSuccess) throw_cuda_error("measuring a GPU's memory", error);
}

__device__ std::uint32_t probe_word(std::uint32_t index) {  // lowbias32
  index = (index ^ (index >> 16)) * 0x7feb352du;
  index = (index ^ (index >> 15)) * 0x846ca68bu;
  return index ^ (index >> 16);
}

__device__ std::uint32_t folded(uint4 x) {
  return x.x ^ x.y ^ x.z ^ x.w;
}

// XOR over the block; thread 0 gets the result.
__device__ std::uint32_t block_fold(std::uint32_t value) {
  __shared__ std::uint32_t warps[kProbeThreads / 32];
  value = __reduce_xor_sync(~0u, value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  return threadIdx.x < 32 ? __reduce_xor_sync(~0u, warps[threadIdx.x]) : 0;
}

__global__ void __launch_bounds__(kProbeThreads) write_words(uint4* data, std::size_t count, std::uint32_t* sums) {
  std::uint32_t sum = 0;
  for (std::size_t i = blockIdx.x * std::size_t{kProbeThreads} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * kProbeThreads) {
    const auto first = static_cast<std::uint32_t>(4 * i);
    const uint4 words{probe_word(first), probe_word(first + 1), probe_word(first + 2), probe_word(first + 3)};
    data[i] = words;
    sum ^= folded(words);
  }
  sum = block_fold(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// `count` is a multiple of what all threads read in one iteration of the loop.
__global__ void __launch_bounds__(kProbeThreads, 2)
    read_words(const uint4* data, std::size_t count, std::uint32_t* sums) {
  const std::size_t stride = std::size_t{gridDim.x} * kProbeThreads;
  std::uint32_t sum = 0;
  for (std::size_t i = blockIdx.x * std::size_t{kProbeThreads} + threadIdx.x; i < count; i += stride * kProbeUnroll) {
    uint4 words[kProbeUnroll];
#pragma unroll
    for (int j = 0; j < kProbeUnroll; ++j) words[j] = __ldcs(data + i + static_cast<std::size_t>(j) * stride);
#pragma unroll
    for (int j = 0; j < kProbeUnroll; ++j) sum ^= folded(words[j]);
  }
  sum = block_fold(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

int probe_blocks(Device device) {  // two per SM: all its threads
  int sms = 0;
  check_probe(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.index));
  return 2 * sms;
}

std::uint32_t fold_of(const Buffer& sums, int blocks, cudaStream_t stream) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(blocks));
  check_probe(
      cudaMemcpyAsync(words.data(), sums.data(), words.size() * sizeof(words[0]), cudaMemcpyDeviceToHost, stream));
  check_probe(cudaStreamSynchronize(stream));
  std::uint32_t fold = 0;
  for (const std::uint32_t word : words) fold ^= word;
  return fold;
}

class TimingEvent {
 public:
  TimingEvent() { check_probe(cudaEventCreate(&event_)); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  ~TimingEvent() { cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

// The launches below do not use device/launch_sm90.cuh, which this module may not include: no step runs beside them.
GpuReadProbe::GpuReadProbe(Device device, std::size_t size_bytes)
    : blocks_(probe_blocks(device)),
      num_vectors_(
          round_up(size_bytes / sizeof(uint4), static_cast<std::size_t>(blocks_) * kProbeThreads * kProbeUnroll)),
      stream_(device),
      data_(num_vectors_ * sizeof(uint4), device),
      sums_(static_cast<std::size_t>(blocks_) * sizeof(std::uint32_t), device) {
  const CurrentDevice current(device.index);
  auto* const stream = static_cast<cudaStream_t>(stream_.native());
  write_words<<<static_cast<unsigned>(blocks_), kProbeThreads, 0, stream>>>(
      reinterpret_cast<uint4*>(data_.data()), num_vectors_, reinterpret_cast<std::uint32_t*>(sums_.data()));
  check_probe(cudaGetLastError());
  expected_ = fold_of(sums_, blocks_, stream);
}

double GpuReadProbe::gbps() {
  const CurrentDevice current(stream_.device().index);
  auto* const stream = static_cast<cudaStream_t>(stream_.native());
  const TimingEvent begin, end;
  check_probe(cudaEventRecord(begin.get(), stream));
  read_words<<<static_cast<unsigned>(blocks_), kProbeThreads, 0, stream>>>(
      reinterpret_cast<const uint4*>(data_.data()), num_vectors_, reinterpret_cast<std::uint32_t*>(sums_.data()));
  check_probe(cudaGetLastError());
  check_probe(cudaEventRecord(end.get(), stream));
  if (fold_of(sums_, blocks_, stream) != expected_)
    throw Failure("measuring a GPU's memory: what was read is not what was written");
  float milliseconds = 0;
  check_probe(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  return static_cast<double>(num_vectors_ * sizeof(uint4)) / (static_cast<double>(milliseconds) * 1e6);
}

double measure_gpu_read_gbps(Device device, int passes, std::size_t size_bytes) {
  require(passes >= 1, "measure_gpu_read_gbps: {} passes", passes);
  GpuReadProbe probe(device, size_bytes);
  probe.gbps();
  std::vector<double> rates(static_cast<std::size_t>(passes));
  for (double& rate : rates) rate = probe.gbps();
  const auto median = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), median, rates.end());
  return *median;
}

}  // namespace heddle
