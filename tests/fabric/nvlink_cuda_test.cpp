// The fabric nvlink on GPUs. Ranks share GPUs where cuda_ipc gives the memory, so that one GPU is enough; a test that
// needs more skips, and says so.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/graph.h"
#include "base/team.h"
#include "base/tracer.h"
#include "conformance/run_cases.h"
#include "fabric/nvlink/nccl_collectives.h"
#include "fabric/nvlink/nvlink_ranks.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Before CUDA starts, which reads it: as NvlinkThreads would, but the tests ask for GPUs first.
const bool environment_is_set = [] {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return true;
}();

int num_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  cudaGetLastError();
  return count;
}

std::vector<std::size_t> used_memory() {  // by GPU
  std::vector<std::size_t> used;
  for (int device = 0; device < num_gpus(); ++device) {
    std::size_t free = 0;
    std::size_t total = 0;
    cudaSetDevice(device);
    cudaMemGetInfo(&free, &total);
    used.push_back(total - free);
  }
  return used;
}

// Of a heap of 64 MiB a rank nothing is left.
void expect_freed(const std::vector<std::size_t>& before) {
  const std::vector<std::size_t> after = used_memory();
  for (std::size_t device = 0; device < after.size(); ++device)
    EXPECT_LE(after[device], before[device] + (32 << 20)) << "cuda:" << device;
}

NvlinkOptions options_of(PeerMemoryKind memory, std::size_t heap_bytes) {
  NvlinkOptions options;
  options.memory = memory;
  options.fabric.heap_bytes = heap_bytes;
  options.fabric.deadline = std::chrono::seconds(5);
  options.vendor_deadline = std::chrono::seconds(10);
  return options;
}

// body(fabric, stream) on each rank, a thread each; `devices` as NvlinkThreads has them.
template <class Body>
void on_ranks(int ranks, const NvlinkOptions& options, const std::vector<int>& devices, Body body) {
  NvlinkThreads world(ranks, options, devices);
  run_team(ranks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    Stream stream(fabric->device());
    fabric->meet();  // all have their streams
    body(*fabric, stream);
  });
}

class Nvlink : public ::testing::TestWithParam<PeerMemoryKind> {
 protected:
  void SetUp() override {
    const int needed = GetParam() == PeerMemoryKind::nccl_windows ? 2 : 1;
    if (num_gpus() < needed) GTEST_SKIP() << "needs " << needed << " GPUs; there are " << num_gpus();
    if (GetParam() == PeerMemoryKind::nccl_windows && !nccl_available())
      GTEST_SKIP() << "needs the NCCL that this was built with";
  }

  static NvlinkOptions options(std::size_t heap_bytes = std::size_t{8} << 20) {
    return options_of(GetParam(), heap_bytes);
  }

  static int several_ranks() { return std::clamp(num_gpus(), 2, 4); }

  template <class Body>
  static void on_gpus(int ranks, const NvlinkOptions& options, Body body) {
    on_ranks(ranks, options, {}, body);
  }
};

TEST_P(Nvlink, PassesTheCases) {
  conformance::Course course;
  course.options.rounds = 100;
  on_gpus(several_ranks(), options(conformance::heap_bytes_for(course.options)),
          [&](Fabric& fabric, Stream& stream) { run_cases(fabric, stream, course, [](auto, auto) {}); });
}

// Messages through put, signal_next, wait_next and barriers, captured once: each replay gets its own message, and all of
// them have the bits that the same calls give without a graph.
TEST_P(Nvlink, GraphsReplay) {
  const conformance::Course course{.only = "replay", .replays = 200};
  on_gpus(2, options(conformance::heap_bytes_for(course.options)),
          [&](Fabric& fabric, Stream& stream) { run_cases(fabric, stream, course, [](auto, auto) {}); });
}

TEST_P(Nvlink, RejectsACapturedWaitForAValue) {
  const conformance::Course course{.only = "replay_rejects_values"};
  on_gpus(2, options(conformance::heap_bytes_for(course.options)),
          [&](Fabric& fabric, Stream& stream) { run_cases(fabric, stream, course, [](auto, auto) {}); });
}

// One rank never signals: all ranks end, with the same words, and the GPUs' memory is free again.
TEST_P(Nvlink, AKernelThatIsNeverSignalledEndsForAll) {
  NvlinkOptions short_wait = options(std::size_t{64} << 20);
  short_wait.fabric.deadline = std::chrono::seconds(1);
  on_gpus(2, short_wait, [](Fabric&, Stream&) {});  // contexts and modules are there from here on
  const std::vector<std::size_t> before = used_memory();
  std::vector<std::string> said(2);
  on_gpus(2, short_wait, [&](Fabric& fabric, Stream& stream) {
    const SymmetricSpan flag = fabric.allocate(sizeof(std::uint64_t));
    auto* word = reinterpret_cast<std::uint64_t*>(flag.data);
    try {
      if (fabric.rank() == 0)
        fabric.wait(stream, 1, word, 7, "never raised");
      else
        fabric.barrier(stream);  // rank 0 comes here no more
      fabric.synchronize(stream);
      fabric.barrier(stream);
      fabric.synchronize(stream);
    } catch (const Timeout& timeout) {
      said[static_cast<std::size_t>(fabric.rank())] = timeout.what();
    }
  });
  // Either wait may give up first; both ranks tell the same of it.
  EXPECT_EQ(said[0], said[1]);
  EXPECT_THAT(said, Each(AllOf(HasSubstr("waited for rank"), HasSubstr("past the deadline of 1.0 s"))));
  expect_freed(before);
}

// Rank 1 leaves by an exception while the others' kernels wait for it and write to it: its heap goes when they have let
// go, and nothing of any heap is left.
TEST_P(Nvlink, AnExceptionOfOneRankFreesAllHeaps) {
  const NvlinkOptions large = options(std::size_t{64} << 20);
  on_gpus(2, large, [](Fabric&, Stream&) {});
  const std::vector<std::size_t> before = used_memory();
  std::string said;
  try {
    on_gpus(several_ranks(), large, [&](Fabric& fabric, Stream& stream) {
      const SymmetricSpan area = fabric.allocate(std::size_t{32} << 20);
      auto* semaphore = reinterpret_cast<Semaphore*>(fabric.allocate(sizeof(Semaphore)).data);
      if (fabric.rank() == 1) throw InputError("an error of rank 1's own");
      for (int i = 0; i < 20; ++i) fabric.put(stream, 1, area.data, area.data, area.size_bytes);
      fabric.wait_next(stream, 1, semaphore, "from rank 1");
      try {
        fabric.synchronize(stream);
        ADD_FAILURE() << "rank " << fabric.rank() << " has heard of nothing";
      } catch (const Failure& failure) {
        if (fabric.rank() == 0) said = failure.what();
      }
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("an error of rank 1's own"));
  }
  EXPECT_THAT(said, HasSubstr("rank 1 has ended with an error of its own"));
  expect_freed(before);
}

TEST_P(Nvlink, RefusesHeapsOfDifferentSizes) {
  std::vector<std::string> said(2);
  NvlinkThreads hosts(2, options());
  run_team(2, [&](TeamMember& member) {
    try {
      const auto fabric = hosts.rank(member.rank());
      const SymmetricSpan span = fabric->allocate(member.rank() == 0 ? 256 : 512);
      ADD_FAILURE() << "allocated " << span.size_bytes;
    } catch (const InvalidArgument& error) {
      said[static_cast<std::size_t>(member.rank())] = error.what();
    }
  });
  EXPECT_THAT(said, Each(AllOf(HasSubstr("rank 1 asks for 512 bytes"), HasSubstr("rank 0 for 256"))));
}

TEST_P(Nvlink, SaysThatThereAreTooFewGpus) {
  if (GetParam() != PeerMemoryKind::nccl_windows) GTEST_SKIP() << "cuda_ipc lets ranks share GPUs";
  const int ranks = num_gpus() + 1;
  std::string said;
  NvlinkThreads world(ranks, options());
  run_team(ranks, [&](TeamMember& member) {
    try {
      const auto fabric = world.rank(member.rank());
      ADD_FAILURE() << fabric->name() << " opened";
    } catch (const Failure& failure) {  // the others learn that this one has failed
      if (member.rank() == ranks - 1) said = failure.what();
    }
  });
  EXPECT_THAT(said, HasSubstr(fmt::format("there is no cuda:{}", ranks - 1)));
}

TEST_P(Nvlink, NcclSumsAndGathers) {
  if (!nccl_available()) GTEST_SKIP() << "needs the NCCL that this was built with";
  if (num_gpus() < 2) GTEST_SKIP() << "NCCL takes no two ranks on one GPU";
  const int ranks = std::min(num_gpus(), 4);
  constexpr std::size_t kCount = 1024;
  on_gpus(ranks, options(), [&](Fabric& fabric, Stream& stream) {
    Ranks world(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) world[static_cast<std::size_t>(rank)] = rank;
    const auto nccl = open_nccl(fabric, world);
    std::vector<float> values(kCount, static_cast<float>(fabric.rank() + 1));
    Buffer plain(kCount * sizeof(float), fabric.device());
    for (void* memory :
         {static_cast<void*>(plain.data()), static_cast<void*>(nccl->allocate_window(plain.size_bytes()))}) {
      enqueue_copy(stream, memory, values.data(), kCount * sizeof(float));
      nccl->all_reduce(stream, memory, memory, kCount, DType::float32);
      std::vector<float> sums(kCount);
      enqueue_copy(stream, sums.data(), memory, kCount * sizeof(float));
      fabric.synchronize(stream);
      EXPECT_THAT(sums, Each(static_cast<float>(ranks * (ranks + 1) / 2)));
    }
    Buffer gathered(kCount * sizeof(float) * static_cast<std::size_t>(ranks), fabric.device());
    enqueue_copy(stream, plain.data(), values.data(), kCount * sizeof(float));
    nccl->all_gather(stream, gathered.data(), plain.data(), kCount, DType::float32);
    std::vector<float> all(kCount * static_cast<std::size_t>(ranks));
    enqueue_copy(stream, all.data(), gathered.data(), gathered.size_bytes());
    fabric.synchronize(stream);
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(all[kCount * static_cast<std::size_t>(rank)], static_cast<float>(rank + 1));
  });
}

int waits_as_long_as(const Tracer& tracer, std::chrono::nanoseconds shortest, int rank, int from) {
  std::ptrdiff_t count = 0;
  for (const GpuWaits& of_rank : tracer.gpu_waits())
    count += std::ranges::count_if(of_rank.waits, [&](const GpuWait& wait) {
      return wait.rank == rank && wait.from == from && wait.end - wait.begin >= shortest.count();
    });
  return static_cast<int>(count);
}

// Also in replays of a graph, which was captured before.
TEST_P(Nvlink, ATraceShowsWhichRankAKernelWaitedForAndHowLong) {
  constexpr std::chrono::nanoseconds kLate = std::chrono::milliseconds(50);
  Tracer tracer;
  on_gpus(2, options(), [&](Fabric& fabric, Stream& stream) {
    Graph graph(stream, [&] { fabric.barrier(stream); });
    for (int call = 0; call < 3; ++call) {
      fabric.meet();
      if (fabric.rank() == 1) std::this_thread::sleep_for(kLate);
      if (call == 0)
        fabric.barrier(stream);
      else
        graph.launch(stream);
      fabric.synchronize(stream);
    }
    fabric.meet();
  });
  ASSERT_EQ(tracer.gpu_waits().size(), 2u);
  EXPECT_EQ(waits_as_long_as(tracer, kLate / 2, 0, 1), 3);
  EXPECT_EQ(waits_as_long_as(tracer, kLate / 2, 1, 0), 0);
  for (const GpuWaits& of_rank : tracer.gpu_waits()) {
    EXPECT_EQ(of_rank.dropped, 0u);
    ASSERT_EQ(of_rank.clocks.size(), 2u);
    for (const GpuWait& wait : of_rank.waits) {
      EXPECT_EQ(wait.name, "barrier");
      EXPECT_EQ(wait.blocks, 1);
      EXPECT_LT(of_rank.clocks.front(), wait.begin);
      EXPECT_LE(wait.begin, wait.end);
      EXPECT_LT(wait.end, of_rank.clocks.back());
    }
  }
}

// Ranks as threads of one process on cuda:0.
class NvlinkOnOneGpu : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (num_gpus() < 1) GTEST_SKIP() << "needs a GPU; there is none";
  }

  static void run(const conformance::Course& course) {
    const int ranks = GetParam();
    NvlinkOptions options = options_of(PeerMemoryKind::cuda_ipc, conformance::heap_bytes_for(course.options));
    options.fabric.deadline = std::chrono::seconds(10);
    on_ranks(ranks, options, std::vector<int>(static_cast<std::size_t>(ranks), 0),
             [&](Fabric& fabric, Stream& stream) { run_cases(fabric, stream, course, [](auto, auto) {}); });
  }
};

TEST_P(NvlinkOnOneGpu, DividesTheSms) {
  const int ranks = GetParam();
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  on_ranks(ranks, options_of(PeerMemoryKind::cuda_ipc, 1 << 20), std::vector<int>(static_cast<std::size_t>(ranks), 0),
           [&](Fabric& fabric, Stream&) {
             EXPECT_EQ(fabric.device_share().ranks, ranks);
             EXPECT_EQ(fabric.device_share().sms, properties.multiProcessorCount / ranks);
           });
}

TEST_P(NvlinkOnOneGpu, PassesTheCases) {
  run({.options = {.rounds = 40}});
}

TEST_P(NvlinkOnOneGpu, AGraphReplayedTenThousandTimesHasTheBitsOfEagerCalls) {
  if (GetParam() > 4) GTEST_SKIP() << "takes long: scripts/gpu.sh replays does it";
  run({.only = "capabilities", .replays = 10'000});
}

INSTANTIATE_TEST_SUITE_P(Ranks, NvlinkOnOneGpu, ::testing::Values(2, 4, 8),
                         [](const auto& test) { return std::to_string(test.param); });

INSTANTIATE_TEST_SUITE_P(Memory, Nvlink, ::testing::Values(PeerMemoryKind::nccl_windows, PeerMemoryKind::cuda_ipc),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace heddle
