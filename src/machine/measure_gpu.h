// What one GPU reaches, measured here and now: the rate at which its memory can be read. Defined only in builds with
// CUDA; used behind `if constexpr (kHaveCuda)`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/buffer.h"
#include "base/stream.h"

namespace heddle {

// Reads a buffer of random numbers again and again, much larger than the cache, 16 bytes a load, with as many threads
// as the GPU holds: what no kernel that reads its operands once can exceed.
class GpuReadProbe {
 public:
  static constexpr std::size_t kDefaultBytes = std::size_t{2} << 30;

  // `size_bytes` is rounded up to whole sweeps of all threads. Throws Failure when the memory is not there.
  explicit GpuReadProbe(Device device, std::size_t size_bytes = kDefaultBytes);

  // GB/s (1e9 bytes) of one pass, timed by the GPU's own events. Throws Failure when what was read is not what was
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

// The median of `passes`, after one that is not counted.
double measure_gpu_read_gbps(Device device, int passes = 15, std::size_t size_bytes = GpuReadProbe::kDefaultBytes);

}  // namespace heddle
