// Streams, events and buffers on a GPU; skipped with a message where there is none.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/buffer.h"
#include "base/cuda_runtime.h"
#include "base/error.h"
#include "base/stream.h"

namespace heddle {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "there is no GPU here";
  }
};

using CudaStream = OnGpu;

TEST_F(CudaStream, OneThatEndsIsTheNextOneThatBegins) {
  // CUDA gives out hardware queues in turn; a process that made ever new streams would have two share one.
  void* first = nullptr;
  for (int i = 0; i < 100; ++i) {
    const Stream stream(kGpu);
    if (i == 0) first = stream.native();
    ASSERT_EQ(stream.native(), first) << "stream " << i;
  }
  const Stream one(kGpu), other(kGpu);
  EXPECT_NE(one.native(), other.native());
}

TEST_F(CudaStream, EventsOrderTwoStreams) {
  constexpr std::size_t kCount = 16 << 20;
  std::vector<int> source(kCount);
  std::iota(source.begin(), source.end(), 1);
  Buffer memory(kCount * sizeof(int), kGpu);
  for (int round = 0; round < 5; ++round) {
    Stream writer(kGpu);
    Stream reader(kGpu);
    Event written(kGpu);
    std::vector<int> result(kCount, -1);
    cuda::copy(memory.data(), source.data(), memory.size_bytes(), writer.native());
    written.record(writer);
    reader.wait(written);
    cuda::copy(result.data(), memory.data(), memory.size_bytes(), reader.native());
    reader.synchronize();
    ASSERT_EQ(result, source);
    std::ranges::reverse(source);
  }
}

TEST_F(CudaStream, AnEventSynchronizesTheHost) {
  std::vector<int> result(1000, 0);
  const std::vector<int> source(1000, 7);
  Buffer memory(4000, kGpu);
  Stream stream(kGpu);
  Event done(kGpu);
  EXPECT_THROW(stream.wait(done), InvalidArgument);
  cuda::copy(memory.data(), source.data(), 4000, stream.native());
  cuda::copy(result.data(), memory.data(), 4000, stream.native());
  done.record(stream);
  done.synchronize();
  EXPECT_EQ(result, source);
}

TEST_F(CudaStream, TooMuchMemoryIsAnErrorWithTheSize) {
  try {
    const Buffer buffer(std::size_t{1} << 50, kGpu);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("cannot allocate 1125899906842624 bytes"), std::string::npos)
        << failure.what();
  }
}

TEST_F(CudaStream, ADeviceThatIsNotThereIsAnError) {
  EXPECT_THROW(Stream(Device{DeviceKind::cuda, 999}), Failure);
}

TEST_F(CudaStream, DevicesDoNotMix) {
  Stream stream(kGpu);
  const Event on_host;
  EXPECT_THROW(stream.wait(on_host), InvalidArgument);
}

}  // namespace
}  // namespace heddle
