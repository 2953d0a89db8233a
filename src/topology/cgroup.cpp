#include "topology/cgroup.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "topology/system_file.h"

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

// Calls `visit` with the folder of `group` under `hierarchy` and of every group around it. In a container the path may
// be the host's and not exist here; the hierarchy's top is then the container's own group.
void for_each_level(const std::filesystem::path& hierarchy, std::string_view group,
                    FunctionRef<void(const std::filesystem::path&)> visit) {
  if (group.find("..") != std::string_view::npos) group = {};  // outside of this process's namespace
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
        tighten(limits.memory_bytes, whole_number(read_system_file(folder / "memory.max")));
      });
    }
    if (controllers.find(",cpu,") != std::string::npos)
      for_each_level(mount / "cpu", group,
                     [&](const std::filesystem::path& folder) { tighten(limits.cpus, cpus_v1(folder)); });
    if (controllers.find(",memory,") != std::string::npos)
      for_each_level(mount / "memory", group, [&](const std::filesystem::path& folder) {
        tighten(limits.memory_bytes, whole_number(read_system_file(folder / "memory.limit_in_bytes")));
      });
  }
  return limits;
}

}  // namespace heddle
