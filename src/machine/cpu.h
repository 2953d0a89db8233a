// The processor and its memory, as this process may use them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// Data and unified caches of one level and size.
struct CpuCache {
  int level = 0;
  std::int64_t size_bytes = 0;  // of one cache
  int count = 0;
  int shared_by = 0;  // hardware threads that share one cache
};

struct CpuInfo {
  std::string model;  // the system's name for it, or "unknown"
  int sockets = 1;
  int numa_nodes = 1;
  int cores = 1;
  int hardware_threads = 1;       // of those cores
  int usable_threads = 1;         // that this process may use, by affinity and by the cgroup's CPU limit rounded up
  std::vector<CpuCache> caches;   // nearest to the core first
  std::vector<std::string> simd;  // of "avx2", "fma", "f16c", "avx512f", ..., "amx_bf16"; "neon", "sve", ...
  std::int64_t memory_bytes = 0;  // installed, or the cgroup's limit where that is less; 0: unknown
  std::int64_t available_memory_bytes = 0;  // without swapping, now; 0: unknown
};

// Never throws: a field that the system does not tell keeps its default. The hardware is asked once a process; limits and
// memory, each time. Thread-safe.
CpuInfo discover_cpu();

// Size of one cache of the last level; 0 when unknown.
std::int64_t last_level_cache_bytes(const CpuInfo& cpu);

// The first processor in /proc/cpuinfo.
struct CpuIdentity {
  std::string model;
  std::vector<std::string> simd;
};
CpuIdentity parse_cpuinfo(std::string_view text);

}  // namespace heddle
