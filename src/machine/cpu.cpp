#include "machine/cpu.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "base/error.h"
#include "machine/cgroup.h"
#include "machine/system_file.h"

namespace heddle {
namespace {

// The features that decide which kernels run and how fast: name in Linux, name here.
constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kSimdFeatures{{
    {"sse4_1", "sse4.1"},
    {"avx", "avx"},
    {"avx2", "avx2"},
    {"fma", "fma"},
    {"f16c", "f16c"},
    {"avx512f", "avx512f"},
    {"avx512bw", "avx512bw"},
    {"avx512vl", "avx512vl"},
    {"avx512_vnni", "avx512_vnni"},
    {"avx512_bf16", "avx512_bf16"},
    {"avx512_fp16", "avx512_fp16"},
    {"avx_vnni", "avx_vnni"},
    {"amx_tile", "amx_tile"},
    {"amx_int8", "amx_int8"},
    {"amx_bf16", "amx_bf16"},
    {"asimd", "neon"},
    {"asimddp", "dotprod"},
    {"i8mm", "i8mm"},
    {"bf16", "bf16"},
    {"sve", "sve"},
    {"sve2", "sve2"},
}};

bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

// Null if hwloc fails. I/O devices are left out: querying drivers takes seconds on some machines.
Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

int count_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return std::max(1, hwloc_get_nbobjs_by_type(topology, type));  // 0 or -1: unknown
}

std::vector<CpuCache> caches_of(hwloc_topology_t topology) {
  constexpr std::array kLevels{HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE};
  std::vector<CpuCache> caches;
  for (const hwloc_obj_type_t type : kLevels) {
    for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
      const CpuCache cache{.level = static_cast<int>(object->attr->cache.depth),
                           .size_bytes = static_cast<std::int64_t>(object->attr->cache.size),
                           .count = 1,
                           .shared_by = hwloc_bitmap_weight(object->cpuset)};
      if (cache.size_bytes == 0) continue;
      // Processors with two kinds of cores have two kinds of caches at one level.
      const auto same = std::ranges::find_if(caches, [&](const CpuCache& other) {
        return other.level == cache.level && other.size_bytes == cache.size_bytes && other.shared_by == cache.shared_by;
      });
      if (same == caches.end())
        caches.push_back(cache);
      else
        ++same->count;
    }
  }
  return caches;
}

// Hardware threads that the affinity mask allows; 0: unknown.
int threads_by_affinity() {
  constexpr int kMostThreads = 1 << 16;
  const std::unique_ptr<cpu_set_t, decltype(&std::free)> set(CPU_ALLOC(kMostThreads), &std::free);
  const std::size_t size_bytes = CPU_ALLOC_SIZE(kMostThreads);
  if (!set || ::sched_getaffinity(0, size_bytes, set.get()) != 0) return 0;
  return CPU_COUNT_S(size_bytes, set.get());
}

// A field of /proc/meminfo, "MemTotal:       24663936 kB"; 0 when missing.
std::int64_t meminfo_bytes(std::string_view meminfo, std::string_view key) {
  std::string_view value = line_value(meminfo, key);
  if (value.ends_with("kB")) value.remove_suffix(2);
  const std::int64_t kilobytes = whole_number(value).value_or(0);
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  return kilobytes > 0 && kilobytes < kMost ? kilobytes * 1024 : 0;
}

// What does not change while a process runs.
CpuInfo discover_hardware() {
  CpuInfo cpu;
  CpuIdentity identity = parse_cpuinfo(read_system_file("/proc/cpuinfo"));
  cpu.model = std::move(identity.model);
  cpu.simd = std::move(identity.simd);
  if (const Topology topology = load_topology()) {
    cpu.sockets = count_of(topology.get(), HWLOC_OBJ_PACKAGE);
    cpu.numa_nodes = count_of(topology.get(), HWLOC_OBJ_NUMANODE);
    cpu.cores = count_of(topology.get(), HWLOC_OBJ_CORE);
    cpu.hardware_threads = count_of(topology.get(), HWLOC_OBJ_PU);
    cpu.caches = caches_of(topology.get());
  }
  return cpu;
}

}  // namespace

CpuIdentity parse_cpuinfo(std::string_view text) {
  CpuIdentity identity;
  identity.model = line_value(text, "model name");
  if (identity.model.empty()) {
    const std::string_view part = line_value(text, "CPU part");  // ARM gives numbers instead of a name
    identity.model =
        part.empty() ? "unknown" : fmt::format("ARM implementer {} part {}", line_value(text, "CPU implementer"), part);
  }
  std::string_view features = line_value(text, "flags");
  if (features.empty()) features = line_value(text, "Features");
  for (const auto& [linux_name, name] : kSimdFeatures)
    if (has_word(features, linux_name)) identity.simd.emplace_back(name);
  return identity;
}

CpuInfo discover_cpu() {
  static const CpuInfo hardware = discover_hardware();  // several ms, for hwloc loads its plugins
  CpuInfo cpu = hardware;
  const CgroupLimits limits = cgroup_limits();
  const int by_affinity = threads_by_affinity();
  cpu.usable_threads = by_affinity > 0 ? by_affinity : cpu.hardware_threads;
  if (limits.cpus && *limits.cpus < cpu.usable_threads) cpu.usable_threads = static_cast<int>(std::ceil(*limits.cpus));

  const std::string meminfo = read_system_file("/proc/meminfo");
  cpu.memory_bytes = least_known_bytes(meminfo_bytes(meminfo, "MemTotal"), limits.memory_bytes);
  cpu.available_memory_bytes = least_known_bytes(meminfo_bytes(meminfo, "MemAvailable"), limits.available_memory_bytes);
  return cpu;
}

std::int64_t last_level_cache_bytes(const CpuInfo& cpu) {
  return cpu.caches.empty() ? 0 : cpu.caches.back().size_bytes;
}

}  // namespace heddle
