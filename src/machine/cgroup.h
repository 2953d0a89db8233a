// Limits that a container or a batch system sets on this process: Linux control groups, versions 1 and 2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace heddle {

struct CgroupLimits {
  std::optional<double> cpus;                // CPU seconds per second, > 0; nothing: no limit
  std::optional<std::int64_t> memory_bytes;  // > 0; nothing: no limit
  // Memory that the limits leave now, >= 0; nothing: no limit. As in MemAvailable, page cache that the kernel can drop
  // counts as free: otherwise a group that has just downloaded a model would have nothing left.
  std::optional<std::int64_t> available_memory_bytes;
};

// The tightest limits of the process's groups and of the groups around them. Missing or malformed files set no limit.
// Tests pass another `root`.
CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

// The smaller of the system's figure (0: unknown) and the group's. 0 when neither is known. A group that leaves less
// than a page counts as leaving 4096 bytes, because 0 means unknown.
std::int64_t least_known_bytes(std::int64_t system_bytes, std::optional<std::int64_t> group_bytes);

}  // namespace heddle
