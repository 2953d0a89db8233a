// The limits that a container or a batch system sets on this process: Linux control groups, version 1 and 2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace heddle {

struct CgroupLimits {
  std::optional<double> cpus;                // processor time a second, > 0; nothing: no limit
  std::optional<std::int64_t> memory_bytes;  // > 0; nothing: no limit
};

// The tightest limits of the process's groups and of the groups around them. `root` stands for "/" in tests.
// Files that are missing or make no sense set no limit.
CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace heddle
