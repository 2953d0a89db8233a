// What callers get wrong, and what they hear of it.
#include <gmock/gmock.h>

#include <string>

#include "base/error.h"
#include "collectives/all_reduce.h"
#include "collectives/broadcast.h"
#include "collectives/ranks.h"

namespace heddle {
namespace {

using testing::HasSubstr;

template <class Error, class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Agreement, AnotherCountIsNamedOnEveryRankBeforeAnythingIsWaitedFor) {
  run_ranks(3, {}, [](Communicator& communicator, Stream& stream) {
    std::vector<float> x(16);
    const std::size_t count = communicator.rank() == 1 ? 15 : 16;
    const std::string message = message_of<InvalidArgument>([&] {
      all_reduce(communicator, {x.data(), x.data(), count, DType::float32}, stream);
    });
    EXPECT_THAT(message, HasSubstr("count"));
    EXPECT_THAT(message, HasSubstr("rank 1 has 15"));
  });
}

TEST(Agreement, AnotherCollectiveDtypeOrRootIsNamed) {
  run_ranks(2, {}, [](Communicator& communicator, Stream& stream) {
    const bool odd = communicator.rank() == 1;
    std::vector<float> x(16);
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  broadcast(communicator, {x.data(), x.data(), 16, DType::float32, odd ? 1 : 0}, stream);
                }),
                HasSubstr("root: rank"));
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_reduce(communicator, {x.data(), x.data(), 8, odd ? DType::float16 : DType::bfloat16}, stream);
                }),
                HasSubstr("float16"));
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  if (odd)
                    all_reduce(communicator, {x.data(), x.data(), 16, DType::float32}, stream);
                  else
                    broadcast(communicator, {x.data(), x.data(), 16, DType::float32}, stream);
                }),
                HasSubstr("collective"));
  });
}

TEST(Agreement, MemoryThatIsSaidToBeSymmetricIsLookedForInTheHeap) {
  run_ranks(2, {}, [](Communicator& communicator, Stream& stream) {
    alignas(16) float own[16] = {};
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_reduce(communicator, {own, own, 16, DType::float32, Memory::symmetric}, stream);
                }),
                HasSubstr("are not in the symmetric heap"));
    const SymmetricSpan span = communicator.fabric().allocate(2 * sizeof own);
    auto* const here = span.data + (communicator.rank() == 1 ? sizeof own : 0);
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_reduce(communicator, {here, here, 16, DType::float32, Memory::symmetric}, stream);
                }),
                HasSubstr("first buffer's place in the heap"));
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_reduce(communicator, {here, here, 1 << 24, DType::float32, Memory::symmetric}, stream);
                }),
                HasSubstr("are not in the symmetric heap"));
  });
}

TEST(Agreement, UncheckedCallsThatDifferEndInATimeoutThatNamesTheRank) {
  RankOptions options;
  options.fabric.deadline = std::chrono::milliseconds(100);
  options.communicator.checked_calls = 0;
  std::atomic<int> timeouts = 0;
  const auto run = [&] {
    run_ranks(2, options, [&](Communicator& communicator, Stream& stream) {
      communicator.force(Choice{Algorithm::low_latency});
      std::vector<float> x(64);
      if (communicator.rank() == 0) {
        all_reduce(communicator, {x.data(), x.data(), 64, DType::float32}, stream);
        EXPECT_THAT(message_of<Timeout>([&] { communicator.fabric().synchronize(stream); }),
                    HasSubstr("rank 0 waited for rank 1"));
        ++timeouts;
        throw Failure("as expected");
      }
    });
  };
  EXPECT_THROW(run(), Failure);
  EXPECT_EQ(timeouts, 1);
}

TEST(Agreement, ArgumentsThatCannotBeAreRefused) {
  run_ranks(2, {}, [](Communicator& communicator, Stream& stream) {
    std::vector<float> x(32);
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  broadcast(communicator, {x.data(), x.data(), 16, DType::float32, 2}, stream);
                }),
                HasSubstr("root 2 is not in a team of 2"));
    auto* const odd =
        reinterpret_cast<std::byte*>(x.data()) + (reinterpret_cast<std::uintptr_t>(x.data()) % 16 == 4 ? 8 : 4);
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_reduce(communicator, {odd, odd, 16, DType::float32, Memory::symmetric}, stream);
                }),
                HasSubstr("aligned to 16 bytes"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { communicator.force(Choice{Algorithm::vendor}); }),
                HasSubstr("NCCL's collectives"));
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  communicator.force(Choice{Algorithm::direct, 1000});
                }),
                HasSubstr("not 1000"));
  });
}

TEST(Agreement, ATeamNeedsItsCaller) {
  ShmThreads world(2, {.heap_bytes = std::size_t{1} << 20});
  const auto fabric = world.rank(0);
  ThreadPool pool(1);
  Stream stream(pool);
  EXPECT_THAT(message_of<InvalidArgument>([&] { Communicator(*fabric, {1}, stream); }), HasSubstr("rank 0"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { Communicator(*fabric, {0, 2}, stream); }), HasSubstr("rank 2"));
}

}  // namespace
}  // namespace heddle
