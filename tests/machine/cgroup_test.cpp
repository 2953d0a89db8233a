#include "machine/cgroup.h"

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "machine/folder.h"

namespace heddle {
namespace {

using ::testing::Eq;

struct CgroupCase {
  std::string name;
  std::map<std::string, std::string> files;
  std::optional<double> cpus;
  std::optional<std::int64_t> memory_bytes;
  std::optional<std::int64_t> available;
};

void PrintTo(const CgroupCase& param, std::ostream* stream) {
  *stream << param.name;
}

class Cgroup : public ::testing::TestWithParam<CgroupCase> {};

TEST_P(Cgroup, GivesTheTightestLimit) {
  const TestFolder root;
  for (const auto& [name, text] : GetParam().files) root.write(name, text);
  const CgroupLimits limits = cgroup_limits(root.path());
  EXPECT_THAT(limits.cpus, Eq(GetParam().cpus));
  EXPECT_THAT(limits.memory_bytes, Eq(GetParam().memory_bytes));
  EXPECT_THAT(limits.available_memory_bytes, Eq(GetParam().available));
}

const std::vector<CgroupCase> kCases{
    {.name = "no_files"},
    {.name = "version2_no_limit",
     .files = {{"proc/self/cgroup", "0::/\n"},
               {"sys/fs/cgroup/cpu.max", "max 100000\n"},
               {"sys/fs/cgroup/memory.max", "max\n"}}},
    {.name = "version2_in_a_container",
     .files = {{"proc/self/cgroup", "0::/\n"},
               {"sys/fs/cgroup/cpu.max", "150000 100000\n"},
               {"sys/fs/cgroup/memory.max", "2147483648\n"}},
     .cpus = 1.5,
     .memory_bytes = std::int64_t{2} << 30,
     .available = std::int64_t{2} << 30},
    {.name = "version2_the_outer_group_is_tighter",
     .files = {{"proc/self/cgroup", "0::/user/session\n"},
               {"sys/fs/cgroup/user/cpu.max", "100000 100000\n"},
               {"sys/fs/cgroup/user/session/cpu.max", "400000 100000\n"},
               {"sys/fs/cgroup/user/memory.max", "max\n"},
               {"sys/fs/cgroup/user/session/memory.max", "4096\n"}},
     .cpus = 1.0,
     .memory_bytes = 4096,
     .available = 4096},
    {.name = "version2_what_is_used_is_not_available",
     .files = {{"proc/self/cgroup", "0::/\n"},
               {"sys/fs/cgroup/memory.max", "1000000\n"},
               {"sys/fs/cgroup/memory.current", "700000\n"}},
     .memory_bytes = 1'000'000,
     .available = 300'000},
    {.name = "version2_file_contents_can_be_dropped",
     .files = {{"proc/self/cgroup", "0::/\n"},
               {"sys/fs/cgroup/memory.max", "1000000\n"},
               {"sys/fs/cgroup/memory.current", "1000000\n"},
               {"sys/fs/cgroup/memory.stat", "anon 5\ninactive_file_x 7\ninactive_file 600000\nactive_file 9\n"}},
     .memory_bytes = 1'000'000,
     .available = 600'000},
    // The outer group's limit is higher, but others have used it up.
    {.name = "version2_the_tightest_limit_need_not_leave_the_least",
     .files = {{"proc/self/cgroup", "0::/user/session\n"},
               {"sys/fs/cgroup/user/memory.max", "9000\n"},
               {"sys/fs/cgroup/user/memory.current", "8900\n"},
               {"sys/fs/cgroup/user/session/memory.max", "4096\n"},
               {"sys/fs/cgroup/user/session/memory.current", "96\n"}},
     .memory_bytes = 4096,
     .available = 100},
    {.name = "version2_more_used_than_allowed",  // the limit was lowered
     .files = {{"proc/self/cgroup", "0::/\n"},
               {"sys/fs/cgroup/memory.max", "1000\n"},
               {"sys/fs/cgroup/memory.current", "9223372036854775807\n"}},
     .memory_bytes = 1000,
     .available = 0},
    {.name = "version2_nonsense_about_use",
     .files = {{"proc/self/cgroup", "0::/\n"},
               {"sys/fs/cgroup/memory.max", "1000\n"},
               {"sys/fs/cgroup/memory.current", "-9223372036854775808\n"},
               {"sys/fs/cgroup/memory.stat", "inactive_file -1\n\ninactive_file"}},
     .memory_bytes = 1000,
     .available = 1000},
    {.name = "version1_what_is_used_is_not_available",
     .files = {{"proc/self/cgroup", "3:memory:/\n"},
               {"sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n"},
               {"sys/fs/cgroup/memory/memory.usage_in_bytes", "700000\n"},
               {"sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 100000\n"}},
     .memory_bytes = 1'000'000,
     .available = 400'000},
    // Docker's version 1 shows the host's path, and mounts the group itself at the top.
    {.name = "version1_path_of_the_host",
     .files = {{"proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n3:memory:/docker/0123\n"},
               {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"},
               {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
               {"sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"}},
     .cpus = 2.0,
     .memory_bytes = std::int64_t{1} << 30,
     .available = std::int64_t{1} << 30},
    {.name = "version1_no_quota",
     .files = {{"proc/self/cgroup", "4:cpu:/\n"},
               {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
               {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}},
    {.name = "cpuset_is_not_cpu",
     .files = {{"proc/self/cgroup", "4:cpuset:/\n"},
               {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
               {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}},
    {.name = "a_path_that_climbs_out",
     .files = {{"proc/self/cgroup", "0::/../../../elsewhere\n"}, {"sys/fs/cgroup/cpu.max", "100000 100000\n"}},
     .cpus = 1.0},
    {.name = "nonsense",
     .files = {{"proc/self/cgroup", "::\n:\n\n0::/a//b\nno colon\n"},
               {"sys/fs/cgroup/cpu.max", "12 0\n"},
               {"sys/fs/cgroup/memory.max", "99999999999999999999999\n"},
               {"sys/fs/cgroup/a/cpu.max", "-5 100\n"},
               {"sys/fs/cgroup/a/memory.max", "-1\n"}}},
};

INSTANTIATE_TEST_SUITE_P(Trees, Cgroup, ::testing::ValuesIn(kCases), [](const auto& test) { return test.param.name; });

TEST(LeastKnownBytes, IgnoresWhatIsNotKnown) {
  EXPECT_EQ(least_known_bytes(0, std::nullopt), 0);
  EXPECT_EQ(least_known_bytes(50'000, std::nullopt), 50'000);
  EXPECT_EQ(least_known_bytes(0, 30'000), 30'000);
  EXPECT_EQ(least_known_bytes(50'000, 30'000), 30'000);
  EXPECT_EQ(least_known_bytes(50'000, 90'000), 50'000);
  EXPECT_EQ(least_known_bytes(50'000, 0), 4096);  // not 0, which is: unknown
}

}  // namespace
}  // namespace heddle
