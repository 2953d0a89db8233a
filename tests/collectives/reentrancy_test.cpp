// Calls back to back, without a barrier between them, while ranks are late at random.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/broadcast.h"
#include "collectives/cases.h"
#include "collectives/ranks.h"
#include "collectives/reduce_scatter.h"

namespace heddle {
namespace {

std::uint32_t draw(std::uint32_t& state) {
  return state = state * 1664525u + 1013904223u;
}

// Every call's numbers are its own, so a word of another epoch would show.
float value_of(int call, int rank, std::size_t i) {
  return static_cast<float>(call * 31 + rank * 7) + static_cast<float>(i) * 0.5f;
}

TEST(Reentrancy, ThousandsOfCallsOfMixedSizesAndAlgorithmsNeverMix) {
  constexpr int kCalls = 3000, kSize = 3;
  constexpr std::size_t kMost = 96;
  static_assert(static_cast<int>(Algorithm::pipelined) == 3);
  RankOptions options;
  options.communicator = {
      .low_latency_bytes = 1024, .two_phase_bytes = 1024, .staging_bytes = 6 << 10, .pipeline_bytes = 1 << 10};
  run_ranks(kSize, options, [](Communicator& communicator, Stream& stream) {
    std::uint32_t shared = 1, own = static_cast<std::uint32_t>(communicator.rank()) + 77;
    const auto symmetric = [&] {
      return reinterpret_cast<float*>(communicator.fabric().allocate(kMost * kSize * sizeof(float)).data);
    };
    float* const in = symmetric();
    float* const out = symmetric();
    for (int call = 0; call < kCalls; ++call) {
      const std::size_t count = 1 + (draw(shared) >> 20) % kMost;
      const auto algorithm = static_cast<Algorithm>((draw(shared) >> 20) % 4);
      const auto kind = (draw(shared) >> 20) % 4;
      if ((draw(own) >> 20) % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds((draw(own) >> 20) % 200));
      communicator.force(Choice{algorithm});
      for (std::size_t i = 0; i < count * kSize; ++i) in[i] = value_of(call, communicator.rank(), i);
      const auto sum_at = [&](std::size_t i) {
        return value_of(call, 0, i) + value_of(call, 1, i) + value_of(call, 2, i);
      };
      const auto me = static_cast<std::size_t>(communicator.rank());
      const Memory memory = call % 2 == 0 ? Memory::any : Memory::symmetric;
      if (kind == 0) all_reduce(communicator, {in, out, count, DType::float32, memory}, stream);
      if (kind == 1) all_gather(communicator, {in, out, count, DType::float32}, stream);
      if (kind == 2) reduce_scatter(communicator, {in, out, count, DType::float32}, stream);
      const int root = call % kSize;
      if (kind == 3) broadcast(communicator, {in, out, count, DType::float32, root}, stream);
      communicator.fabric().synchronize(stream);
      for (std::size_t i = 0; i < count; ++i) {
        const float want = kind == 0   ? sum_at(i)
                           : kind == 1 ? value_of(call, 0, i)
                           : kind == 2 ? sum_at(me * count + i)
                                       : value_of(call, root, i);
        ASSERT_EQ(out[i], want) << "call " << call << " kind " << kind << " by " << name_of(algorithm) << " element "
                                << i << " on rank " << communicator.rank();
      }
    }
  });
}

// As a captured graph would: all enqueued at once, so that nothing but the collectives themselves holds ranks together.
TEST(Reentrancy, CallsQueuedWithoutAHostBetweenThemFeedEachOther) {
  constexpr int kCalls = 400, kSize = 4;
  constexpr std::size_t kCount = 37;
  for (const Algorithm algorithm : algorithms_of(Collective::all_reduce, DeviceKind::cpu))
    run_ranks(kSize, {}, [&](Communicator& communicator, Stream& stream) {
      communicator.force(Choice{algorithm});
      std::uint32_t own = static_cast<std::uint32_t>(communicator.rank());
      const std::span<float> x(reinterpret_cast<float*>(communicator.fabric().allocate(kCount * sizeof(float)).data),
                               kCount);
      std::fill(x.begin(), x.end(), static_cast<float>(communicator.rank()));
      for (int call = 0; call < kCalls; ++call) {
        all_reduce(communicator, {x.data(), x.data(), kCount, DType::float32, Memory::symmetric}, stream);
        const bool late = (draw(own) >> 20) % 50 == 0;
        stream.enqueue([x, late](ThreadPool&) {
          if (late) std::this_thread::sleep_for(std::chrono::microseconds(100));
          for (float& value : x) value = value / 4.0f + 1.0f;  // exact: whole numbers and powers of two
        });
      }
      communicator.fabric().synchronize(stream);
      // The first sum is 0 + 1 + 2 + 3; then all ranks hold the same.
      float want = 6.0f / 4.0f + 1.0f;
      for (int call = 1; call < kCalls; ++call) want = (want + want + want + want) / 4.0f + 1.0f;
      EXPECT_THAT(x, testing::Each(want)) << name_of(algorithm);
    });
}

}  // namespace
}  // namespace heddle
