// The fabric nvlink on GPUs. Each test skips where there are fewer than two, and says so.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/team.h"
#include "conformance/run_cases.h"
#include "device/wait_record.h"
#include "fabric/nvlink/nccl_collectives.h"
#include "fabric/nvlink/nvlink_ranks.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

int num_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  cudaGetLastError();
  return count;
}

std::size_t used_memory(int device) {
  std::size_t free = 0;
  std::size_t total = 0;
  cudaSetDevice(device);
  cudaMemGetInfo(&free, &total);
  return total - free;
}

class Nvlink : public ::testing::TestWithParam<PeerMemoryKind> {
 protected:
  void SetUp() override {
    if (num_gpus() < 2) GTEST_SKIP() << "needs two GPUs; there are " << num_gpus();
    if (GetParam() == PeerMemoryKind::nccl_windows && !nccl_available())
      GTEST_SKIP() << "needs the NCCL that this was built with";
  }

  static NvlinkOptions options(std::size_t heap_bytes = std::size_t{8} << 20) {
    NvlinkOptions options;
    options.memory = GetParam();
    options.fabric.heap_bytes = heap_bytes;
    options.fabric.deadline = std::chrono::seconds(5);
    options.vendor_deadline = std::chrono::seconds(10);
    return options;
  }

  template <class Body>
  static void on_gpus(int ranks, const NvlinkOptions& options, Body body) {
    NvlinkThreads world(ranks, options);
    run_team(ranks, [&](TeamMember& member) {
      const auto fabric = world.rank(member.rank());
      Stream stream(fabric->device());
      body(*fabric, stream);
    });
  }
};

TEST_P(Nvlink, PassesTheCases) {
  conformance::Course course;
  course.options.rounds = 100;
  on_gpus(std::min(num_gpus(), 4), options(conformance::heap_bytes_for(course.options)),
          [&](Fabric& fabric, Stream& stream) { run_cases(fabric, stream, course, [](auto, auto) {}); });
}

// A message and its answer through put, signal, wait and a barrier, captured once and replayed.
TEST_P(Nvlink, GraphsReplay) {
  constexpr int kReplays = 100;
  on_gpus(2, options(), [&](Fabric& fabric, Stream& stream) {
    const int peer = 1 - fabric.rank();
    const SymmetricSpan inbox = fabric.allocate(sizeof(std::uint64_t));
    const SymmetricSpan flags = fabric.allocate(2 * sizeof(std::uint64_t));
    auto* flag = reinterpret_cast<std::uint64_t*>(flags.data);
    Buffer source(sizeof(std::uint64_t), fabric.device());
    const std::uint64_t own = 100 + static_cast<std::uint64_t>(fabric.rank());
    enqueue_copy(stream, source.data(), &own, sizeof(own));
    fabric.barrier(stream);
    fabric.synchronize(stream);

    const auto native = static_cast<cudaStream_t>(stream.native());
    ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    fabric.put(stream, peer, inbox.data, source.data(), sizeof(own));
    fabric.signal_add(stream, peer, flag, 1);
    fabric.wait(stream, peer, flag, 1, "replay");
    fabric.barrier(stream);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
    cudaGraphExec_t replay = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    for (int i = 0; i < kReplays; ++i) ASSERT_EQ(cudaGraphLaunch(replay, native), cudaSuccess);
    fabric.synchronize(stream);

    std::uint64_t got = 0;
    std::uint64_t count = 0;
    enqueue_copy(stream, &got, inbox.data, sizeof(got));
    enqueue_copy(stream, &count, flag, sizeof(count));
    fabric.synchronize(stream);
    EXPECT_EQ(got, 100 + static_cast<std::uint64_t>(peer));
    EXPECT_EQ(count, kReplays);
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    fabric.barrier(stream);
    fabric.synchronize(stream);
  });
}

// One rank never signals: all ranks end, with the same words, and the GPUs' memory is free again.
TEST_P(Nvlink, AKernelThatIsNeverSignalledEndsForAll) {
  NvlinkOptions short_wait = options(std::size_t{64} << 20);
  short_wait.fabric.deadline = std::chrono::seconds(1);
  on_gpus(2, short_wait, [](Fabric&, Stream&) {});  // contexts and modules are there from here on
  const std::array<std::size_t, 2> before = {used_memory(0), used_memory(1)};
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
  // Of the heap of 64 MiB nothing is left.
  for (int device = 0; device < 2; ++device)
    EXPECT_LE(used_memory(device), before[static_cast<std::size_t>(device)] + (32 << 20)) << "cuda:" << device;
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

INSTANTIATE_TEST_SUITE_P(Memory, Nvlink, ::testing::Values(PeerMemoryKind::nccl_windows, PeerMemoryKind::cuda_ipc),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace heddle
