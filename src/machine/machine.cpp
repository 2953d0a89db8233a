#include "machine/machine.h"

#include <fmt/format.h>

#include <map>

#include "machine/gpu.h"

namespace heddle {

std::string machine_key(const CpuInfo& cpu, const std::vector<std::string>& gpu_names) {
  // Rounded to a whole GiB: the memory that firmware reserves differs by some MB between boots.
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  std::string key =
      fmt::format("{}; {} socket(s), {} core(s), {} thread(s), {} usable; {} MiB last-level cache; {} GiB", cpu.model,
                  cpu.sockets, cpu.cores, cpu.hardware_threads, cpu.usable_threads, last_level_cache_bytes(cpu) >> 20,
                  (cpu.memory_bytes + kGiB / 2) / kGiB);
  std::map<std::string_view, int> counts;
  for (const std::string& name : gpu_names) ++counts[name];
  for (const auto& [name, count] : counts) key += fmt::format("; {} x {}", count, name);
  if (counts.empty()) key += "; no GPU";
  for (char& c : key)
    if (c < ' ' || c > '~') c = '?';
  return key;
}

std::string machine_key() {
  return machine_key(discover_cpu(), installed_gpus());
}

}  // namespace heddle
