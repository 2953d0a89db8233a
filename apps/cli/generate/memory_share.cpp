#include "cli/generate/memory_share.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "machine/cpu.h"
#include "machine/gpu.h"
#include "machine/machine.h"
#include "machine/measure.h"

namespace heddle {
namespace {

constexpr double kLeastShare = 0.1;  // below, memory is not what limits a step

// Of all caches of the last level.
std::int64_t cache_bytes(const CpuInfo& cpu) {
  const auto last = std::ranges::max_element(cpu.caches, {}, &CpuCache::level);
  return last == cpu.caches.end() ? 0 : last->size_bytes * last->count;
}

std::string on_gpu(double gbps, std::int64_t bytes, Device device) {
  const GpuDiscovery found = discover_gpus();
  const auto index = static_cast<std::size_t>(device.index);
  if (index >= found.gpus.size()) return {};
  const GpuInfo& gpu = found.gpus[index];
  if (bytes <= gpu.l2_cache_bytes || gpu.memory_bandwidth_gbps <= 0) return {};
  if (gbps < kLeastShare * gpu.memory_bandwidth_gbps) return {};
  return fmt::format("{:.0f} % of the memory bandwidth ({:.0f} GB/s of {})", 100 * gbps / gpu.memory_bandwidth_gbps,
                     gpu.memory_bandwidth_gbps, gpu.name);
}

std::string on_cpu(double gbps, std::int64_t bytes, int threads) {
  if (bytes <= cache_bytes(discover_cpu())) return {};
  try {
    TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
    double bandwidth = memory_bandwidth_gbps(store, threads);
    // Higher than the memory's rate: the stored figure was measured under load.
    if (gbps > bandwidth) bandwidth = std::max(bandwidth, remeasure_memory_bandwidth_gbps(store, threads));
    if (gbps < kLeastShare * bandwidth) return {};
    return fmt::format("{:.0f} % of the memory bandwidth ({:.1f} GB/s)", 100 * gbps / bandwidth, bandwidth);
  } catch (const Failure&) {  // too little memory to measure
    return {};
  }
}

}  // namespace

std::string memory_share(const SpeedMeter& speed, const ModelShape& shape, Device device, int threads) {
  const double gbps = speed.decode_gbps();
  if (gbps <= 0) return {};
  const auto bytes = static_cast<std::int64_t>(shape.weight_bytes_per_step);
  return device.kind == DeviceKind::cuda ? on_gpu(gbps, bytes, device) : on_cpu(gbps, bytes, threads);
}

}  // namespace heddle
