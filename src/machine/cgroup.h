// The limits that a container or a batch system sets on this process: Linux control groups, version 1 and 2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace heddle {

struct CgroupLimits {
  std::optional<double> cpus;                // processor time a second, > 0; nothing: no limit
  std::optional<std::int64_t> memory_bytes;  // > 0; nothing: no limit
  // What the limits leave of memory now, >= 0; nothing: no limit. File contents that the kernel would drop first count
  // as free, as they do in MemAvailable: otherwise a group that has just downloaded a model would have nothing left.
  std::optional<std::int64_t> available_memory_bytes;
};

// The tightest limits of the process's groups and of the groups around them. `root` stands for "/" in tests.
// Files that are missing or make no sense set no limit.
CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

// The lesser of what the system says, 0 where it does not, and what a group leaves. 0 when neither is known; a group
// that leaves less than a page counts as leaving 4096 bytes, since 0 would say that it is not known.
std::int64_t least_known_bytes(std::int64_t system_bytes, std::optional<std::int64_t> group_bytes);

}  // namespace heddle
