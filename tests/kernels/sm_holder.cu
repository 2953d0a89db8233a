#include "sm_holder.h"

#include <thread>

#include "base/cuda_call.h"
#include "device/launch_sm90.cuh"
#include "device/spin.h"

namespace heddle {
namespace {

__global__ void hold(std::uint32_t* words) {
  atomic_add(words, 1);
  const std::uint64_t from = now_nanoseconds();
  while (atomic_load(words + 1) == 0 && now_nanoseconds() - from < 30'000'000'000) __nanosleep(1000);
}

constexpr Device kGpu{DeviceKind::cuda, 0};

}  // namespace

SmHolder::SmHolder(int num_sms) : stream_(kGpu), words_(2 * sizeof(std::uint32_t)) {
  if (num_sms == 0) return;
  auto* const words = reinterpret_cast<std::uint32_t*>(words_.data());
  launch_sm90("test", hold,
              {.grid = dim3(static_cast<unsigned>(num_sms)), .block = dim3(32), .shared_bytes = std::size_t{224} << 10},
              stream_, words);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (atomic_load(words) != static_cast<std::uint32_t>(num_sms)) {
    if (deadline.passed()) throw Timeout("test: the blocks that hold SMs did not start");
    std::this_thread::yield();
  }
}

SmHolder::~SmHolder() {
  atomic_store(reinterpret_cast<std::uint32_t*>(words_.data()) + 1, 1);
  try {
    stream_.synchronize();
  } catch (...) {  // the test has its own errors to report
  }
}

}  // namespace heddle
