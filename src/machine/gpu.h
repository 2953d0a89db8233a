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
  double memory_bandwidth_gbps = 0;  // by the data sheet's clock and bus width; 0: the driver does not tell
  std::vector<int> peers;            // indices of the GPUs whose memory this one reaches directly
};

struct GpuDiscovery {
  std::vector<GpuInfo> gpus;
  std::string why_none;         // one line, when `gpus` is empty
  std::string driver_version;   // of CUDA, "13.0"; empty: none
  std::string runtime_version;  // of CUDA in this build; empty: built without
};

// Asks the CUDA runtime, which takes up to a second. Never throws: where there is no GPU, driver or CUDA side in this
// build, `why_none` says so.
GpuDiscovery discover_gpus();

// Names of the GPUs that the NVIDIA driver has in hand, by its files alone: at once, and in builds without CUDA.
// `root` stands for "/" in tests.
std::vector<std::string> installed_gpus(const std::filesystem::path& root = "/");

}  // namespace heddle
