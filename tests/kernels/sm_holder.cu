#include "sm_holder.h"

#include <algorithm>
#include <thread>

#include "base/cuda_call.h"
#include "device/launch_sm90.cuh"
#include "device/spin.h"

namespace heddle {
namespace {

// words: whether the blocks may end; then, of each block, whether it has started (1) and has ended by itself (2). The host
// reads them while the kernel runs, so each is a plain store.
__global__ void hold(std::uint32_t* words) {
  atomic_store(words + 1 + blockIdx.x, 1);
  const std::uint64_t from = now_nanoseconds();
  while (atomic_load(words) == 0 && now_nanoseconds() - from < 30'000'000'000) __nanosleep(1000);
  if (atomic_load(words) == 0) atomic_store(words + 1 + blockIdx.x, 2);
}

constexpr Device kGpu{DeviceKind::cuda, 0};

}  // namespace

SmHolder::SmHolder(int num_sms)
    : stream_(kGpu), num_blocks_(num_sms), words_(static_cast<std::size_t>(1 + num_sms) * sizeof(std::uint32_t)) {
  auto* const words = reinterpret_cast<std::uint32_t*>(words_.data());
  std::fill_n(words, 1 + num_sms, 0u);
  if (num_sms == 0) return;
  launch_sm90("test", hold,
              {.grid = dim3(static_cast<unsigned>(num_sms)), .block = dim3(32), .shared_bytes = std::size_t{224} << 10},
              stream_, words);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  for (int block = 0; block < num_sms;) {
    block += atomic_load(words + 1 + block) != 0 ? 1 : 0;
    if (deadline.passed())
      throw_error<Timeout>("test: block {} of the {} that hold SMs has not started", block, num_sms);
    std::this_thread::yield();
  }
}

SmHolder::~SmHolder() {
  atomic_store(reinterpret_cast<std::uint32_t*>(words_.data()), 1);
  try {
    stream_.synchronize();
  } catch (...) {  // the test has its own errors to report
  }
}

bool SmHolder::still_holds() const {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(words_.data());
  for (int block = 0; block < num_blocks_; ++block)
    if (atomic_load(words + 1 + block) != 1) return false;
  return true;
}

}  // namespace heddle
