// Measures the rate at which one GPU reads its memory. Defined only in builds with CUDA; used behind `if constexpr
// (kHaveCuda)`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/buffer.h"
#include "base/stream.h"

namespace heddle {

// Reads a buffer of random numbers, much larger than the cache, again and again, 16 bytes per load and with as many
// threads as the GPU holds: an upper bound for kernels that read their operands once.
class GpuReadProbe {
 public:
  static constexpr std::size_t kDefaultBytes = std::size_t{2} << 30;

  // `size_bytes` is rounded up to whole sweeps of all threads. Throws Failure when memory is short.
  explicit GpuReadProbe(Device device, std::size_t size_bytes = kDefaultBytes);

  // GB/s (1e9 bytes) of one pass, timed with CUDA events. Throws Failure when the data read differ from the data
  // written.
  double gbps();

 private:
  int blocks_ = 0;
  std::size_t num_vectors_ = 0;  // of 16 bytes
  Stream stream_;
  Buffer data_;
  Buffer sums_;  // [blocks]
  std::uint32_t expected_ = 0;
};

// The median of `passes`, after one warm-up pass.
double measure_gpu_read_gbps(Device device, int passes = 15, std::size_t size_bytes = GpuReadProbe::kDefaultBytes);

}  // namespace heddle
