// What launches find out or set once for each device, from several threads at a time.
#include "device/prepared_kernels.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

constexpr int kThreads = 4, kKernels = 200, kDevices = 3;

template <class Act>
void on_threads(Act act) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&act, t] { act(t); });
  for (std::thread& thread : threads) thread.join();
}

TEST(PreparedKernels, EachIsPreparedOnceOnEachDeviceBeforeAnyThreadGoesOn) {
  PreparedKernels prepared;
  struct Kernel {
    std::array<std::atomic<int>, kDevices> times{};
  };
  std::vector<Kernel> kernels(kKernels);
  on_threads([&](int thread) {
    for (int i = 0; i < kKernels * kDevices; ++i) {
      const int at = (i + thread * 7) % (kKernels * kDevices), device = at % kDevices;
      Kernel& kernel = kernels[static_cast<std::size_t>(at / kDevices)];
      std::atomic<int>& times = kernel.times[static_cast<std::size_t>(device)];
      prepared.once(&kernel, device, [&] { ++times; });
      EXPECT_EQ(times, 1);
    }
  });
}

TEST(PreparedKernels, OneThatCouldNotBePreparedIsTriedAgain) {
  PreparedKernels prepared;
  const int kernel = 0;
  int times = 0;
  EXPECT_THROW(prepared.once(&kernel, 0, [&] { throw Failure("no memory"); }), Failure);
  prepared.once(&kernel, 0, [&] { ++times; });
  prepared.once(&kernel, 0, [&] { ++times; });
  EXPECT_EQ(times, 1);
}

TEST(PerDevice, IsMadeOnceForEachDevice) {
  PerDevice<int> values;
  std::array<std::atomic<int>, kDevices> times{};
  on_threads([&](int thread) {
    for (int i = 0; i < 3 * kDevices; ++i) {
      const int device = (i + thread) % kDevices;
      const int value = values.get({DeviceKind::cuda, device}, [&] {
        ++times[static_cast<std::size_t>(device)];
        return 100 + device;
      });
      EXPECT_EQ(value, 100 + device);  // not what another device, asked first, has
    }
  });
  for (const std::atomic<int>& each : times) EXPECT_EQ(each, 1);
  EXPECT_THROW(values.get({DeviceKind::cuda, kMaxDevices}, [] { return 0; }), InvalidArgument);
}

}  // namespace
}  // namespace heddle
