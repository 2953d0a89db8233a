#include "machine/cpu.h"

#include <gmock/gmock.h>
#include <sched.h>

#include <string>
#include <thread>

#include "machine/machine.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Cpuinfo, GivesModelAndFeaturesOfAnX86) {
  const CpuIdentity identity = parse_cpuinfo(
      "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7B13\n"
      "flags\t\t: fpu avx f16c fma avx2 avx512_bf16\n\nprocessor\t: 1\nmodel name\t: another\nflags\t\t: sve\n");
  EXPECT_EQ(identity.model, "AMD EPYC 7B13");
  EXPECT_THAT(identity.simd, ElementsAre("avx", "avx2", "fma", "f16c", "avx512_bf16"));
}

TEST(Cpuinfo, GivesImplementerAndPartOfAnArm) {
  const CpuIdentity identity =
      parse_cpuinfo("processor\t: 0\nFeatures\t: fp asimd bf16 sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
  EXPECT_EQ(identity.model, "ARM implementer 0x41 part 0xd40");
  EXPECT_THAT(identity.simd, ElementsAre("neon", "bf16", "sve"));
}

TEST(Cpuinfo, TakesWholeWordsOnly) {
  EXPECT_THAT(parse_cpuinfo("flags: avx2x xfma sve2\n").simd, ElementsAre("sve2"));
}

TEST(Cpuinfo, AnythingElseIsUnknown) {
  for (const std::string_view text :
       {"", ":", "\n\n", "flags", "model name", "model name:", "\xff\xfe: \x80\nflags:"}) {
    const CpuIdentity identity = parse_cpuinfo(text);
    EXPECT_EQ(identity.model, "unknown") << text;
    EXPECT_THAT(identity.simd, IsEmpty()) << text;
  }
}

TEST(Cpu, ThisMachineIsPlausible) {
  const CpuInfo cpu = discover_cpu();
  EXPECT_THAT(cpu.model, Not(IsEmpty()));
  EXPECT_GE(cpu.sockets, 1);
  EXPECT_GE(cpu.numa_nodes, 1);
  EXPECT_GE(cpu.cores, cpu.sockets);
  EXPECT_GE(cpu.hardware_threads, cpu.cores);
  EXPECT_GE(cpu.usable_threads, 1);
  EXPECT_LE(cpu.usable_threads, static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_GT(cpu.memory_bytes, 64 << 20);
  EXPECT_LE(cpu.available_memory_bytes, cpu.memory_bytes);
  for (const CpuCache& cache : cpu.caches) {
    EXPECT_GE(cache.level, 1);
    EXPECT_GT(cache.size_bytes, 0);
    EXPECT_GE(cache.count, 1);
    EXPECT_GE(cache.shared_by, 1);
  }
}

TEST(Cpu, AThreadBoundToOneCoreMayUseOne) {
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(discover_cpu().usable_threads, 1);
  }).join();
}

TEST(MachineKey, TellsMachinesApart) {
  const CpuInfo cpu{
      .model = "A", .caches = {{.level = 3, .size_bytes = 32 << 20}}, .memory_bytes = std::int64_t{8} << 30};
  const std::string key = machine_key(cpu, {});
  CpuInfo other = cpu;
  other.model = "B";
  EXPECT_NE(machine_key(other, {}), key);
  other = cpu;
  other.usable_threads = 4;
  EXPECT_NE(machine_key(other, {}), key);
  other = cpu;
  other.caches[0].size_bytes = 16 << 20;
  EXPECT_NE(machine_key(other, {}), key);
  EXPECT_NE(machine_key(cpu, {"NVIDIA H100"}), key);
  EXPECT_NE(machine_key(cpu, {"NVIDIA H100", "NVIDIA H100"}), machine_key(cpu, {"NVIDIA H100"}));
}

TEST(MachineKey, IsTheSameAfterABoot) {
  CpuInfo cpu{.model = "A", .memory_bytes = (std::int64_t{8} << 30) - (100 << 20), .available_memory_bytes = 1 << 30};
  const std::string key = machine_key(cpu, {});
  cpu.memory_bytes -= 3 << 20;  // firmware reserved a little more
  cpu.available_memory_bytes = 2 << 20;
  EXPECT_EQ(machine_key(cpu, {}), key);
  EXPECT_EQ(machine_key(), machine_key());
}

TEST(MachineKey, IsPrintableWhateverTheSystemSays) {
  EXPECT_THAT(machine_key({.model = "A\xff\n\"B"}, {"G\x01"}), HasSubstr("A??\"B"));
  EXPECT_THAT(machine_key({}, {"G\x01"}), HasSubstr("1 x G?"));
}

}  // namespace
}  // namespace heddle
