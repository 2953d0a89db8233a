// The GPUs of this machine and the links between them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

struct GpuInfo {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_cache_bytes = 0;
  double memory_bandwidth_gbps = 0;  // by the data sheet's clock and bus width; 0: unknown
  std::vector<int> peers;            // GPUs whose memory this one can access directly, by index
};

struct GpuDiscovery {
  std::vector<GpuInfo> gpus;
  std::string why_none;         // one line, when `gpus` is empty
  std::string driver_version;   // the CUDA version that the driver supports, "13.0"; empty: no driver
  std::string runtime_version;  // the CUDA version of this build; empty: built without CUDA
};

// Queries the CUDA runtime, which takes up to a second. Never throws: where there is no GPU or driver, or the build has
// no CUDA, `why_none` says so.
GpuDiscovery discover_gpus();

// Names of the GPUs that the NVIDIA driver manages, read from its files only: fast, and works in builds without CUDA.
// Tests pass another `root`.
std::vector<std::string> installed_gpus(const std::filesystem::path& root = "/");

}  // namespace heddle
