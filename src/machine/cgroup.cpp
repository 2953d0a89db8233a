#include "machine/cgroup.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "machine/system_file.h"

namespace heddle {
namespace {

template <class T>
void tighten(std::optional<T>& limit, std::optional<T> other) {
  if (other && *other > T{}) limit = limit ? std::min(*limit, *other) : *other;
}

std::optional<double> ratio(std::string_view quota, std::string_view period) {
  const auto quota_us = whole_number(quota);
  const auto period_us = whole_number(period);
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;  // "max" or -1: no limit
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

// Version 2, cpu.max: "150000 100000" or "max 100000".
std::optional<double> cpus_v2(const std::filesystem::path& group) {
  const std::string text = read_system_file(group / "cpu.max");
  const std::string_view line = trim(text);
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return ratio(line.substr(0, space), line.substr(space));
}

std::optional<double> cpus_v1(const std::filesystem::path& group) {
  return ratio(read_system_file(group / "cpu.cfs_quota_us"), read_system_file(group / "cpu.cfs_period_us"));
}

// The value of a line "key value" of memory.stat; 0 when there is none.
std::int64_t memory_stat(const std::filesystem::path& group, std::string_view key) {
  const std::string text = read_system_file(group / "memory.stat");
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with(key) && line.substr(key.size()).starts_with(' '))
      return std::max(std::int64_t{0}, whole_number(line.substr(key.size())).value_or(0));
  }
  return 0;
}

// The names of one version's files.
struct MemoryFiles {
  std::string_view limit;
  std::string_view used;
  std::string_view droppable;  // the key in memory.stat of memory that the kernel can drop
};
constexpr MemoryFiles kMemoryV2{"memory.max", "memory.current", "inactive_file"};
constexpr MemoryFiles kMemoryV1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

// Each limit is compared with the use of its own group, for every group around the process: the group with the lowest
// limit need not be the one with the least memory left.
void add_memory(CgroupLimits& limits, const std::filesystem::path& group, const MemoryFiles& files) {
  const auto limit = whole_number(read_system_file(group / files.limit));
  if (!limit || *limit <= 0) return;
  tighten(limits.memory_bytes, limit);
  const std::int64_t used = std::max(std::int64_t{0}, whole_number(read_system_file(group / files.used)).value_or(0));
  const std::int64_t held = used - std::min(used, memory_stat(group, files.droppable));
  const std::int64_t left = *limit - std::min(*limit, held);
  limits.available_memory_bytes = std::min(limits.available_memory_bytes.value_or(left), left);
}

// Calls `visit` with the folder of `group` under `hierarchy` and of every group around it. In a container the path may
// be the host's and not exist here; then the top of the hierarchy is the container's own group.
void for_each_level(const std::filesystem::path& hierarchy, std::string_view group,
                    FunctionRef<void(const std::filesystem::path&)> visit) {
  if (group.find("..") != std::string_view::npos) group = {};  // outside this process's namespace
  while (!group.empty() && group.front() == '/') group.remove_prefix(1);
  while (!group.empty()) {
    visit(hierarchy / group);
    const std::size_t slash = group.rfind('/');
    group = slash == std::string_view::npos ? std::string_view{} : group.substr(0, slash);
  }
  visit(hierarchy);
}

}  // namespace

CgroupLimits cgroup_limits(const std::filesystem::path& root) {
  CgroupLimits limits;
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  const std::string groups = read_system_file(root / "proc/self/cgroup");
  std::string_view rest = groups;
  while (!rest.empty()) {  // a line: "0::/path" (version 2), or "4:cpu,cpuacct:/path"
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() == rest.size() ? rest.size() : line.size() + 1);
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::string_view group = line.substr(second + 1);
    if (controllers == ",,") {
      for_each_level(mount, group, [&](const std::filesystem::path& folder) {
        tighten(limits.cpus, cpus_v2(folder));
        add_memory(limits, folder, kMemoryV2);
      });
    }
    if (controllers.find(",cpu,") != std::string::npos)
      for_each_level(mount / "cpu", group,
                     [&](const std::filesystem::path& folder) { tighten(limits.cpus, cpus_v1(folder)); });
    if (controllers.find(",memory,") != std::string::npos)
      for_each_level(mount / "memory", group,
                     [&](const std::filesystem::path& folder) { add_memory(limits, folder, kMemoryV1); });
  }
  return limits;
}

std::int64_t least_known_bytes(std::int64_t system_bytes, std::optional<std::int64_t> group_bytes) {
  if (!group_bytes) return system_bytes;
  constexpr std::int64_t kNothing = 4096;
  const std::int64_t known = std::max(kNothing, *group_bytes);
  return system_bytes > 0 ? std::min(system_bytes, known) : known;
}

}  // namespace heddle
