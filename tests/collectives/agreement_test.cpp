// Errors of callers, and the exceptions that they get.
#include <gmock/gmock.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/all_to_all.h"
#include "collectives/barrier.h"
#include "collectives/broadcast.h"
#include "collectives/cases.h"
#include "collectives/ranks.h"
#include "collectives/reduce_scatter.h"
#include "fabric/counted_fabric.h"

namespace heddle {
namespace {

using testing::Each;
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

// Of what goes wrong in the stream.
template <class F>
std::string difference_of(Communicator& communicator, Stream& stream, const F& call) {
  return message_of<InvalidArgument>([&] {
    call();
    communicator.fabric().synchronize(stream);
  });
}

TEST(Agreement, AnotherCountIsNamedOnEveryRankInWhateverCallBeforeABufferIsTouched) {
  std::vector<std::optional<Choice>> choices{std::nullopt};
  for (const Algorithm algorithm : algorithms_of(Collective::all_reduce, DeviceKind::cpu))
    choices.emplace_back(Choice{algorithm});
  for (const std::size_t most : {16, 1 << 16})
    for (const std::optional<Choice>& choice : choices) {
      const int calls_before = choice ? 1 : 20;
      run_ranks(3, {}, [&](Communicator& communicator, Stream& stream) {
        communicator.force(choice);
        std::vector<float> x(most, 1);
        const auto reduce = [&](std::size_t count) {
          all_reduce(communicator, {x.data(), x.data(), count, DType::float32}, stream);
        };
        for (int i = 0; i < calls_before; ++i) reduce(0);
        for (const std::size_t other : {std::size_t{15}, std::size_t{0}}) {
          const std::string message = difference_of(communicator, stream, [&] {
            reduce(communicator.rank() == 1 ? other : most);
            reduce(most);  // is skipped
          });
          EXPECT_THAT(message, HasSubstr("count"));
          EXPECT_THAT(message, HasSubstr(fmt::format("rank 1 has {}", other)));
          EXPECT_THAT(x, testing::Each(1));
        }
        reduce(most);
        communicator.fabric().synchronize(stream);
        EXPECT_THAT(x, testing::Each(3));
      });
    }
}

TEST(Agreement, AnotherCollectiveDtypeOrRootIsNamed) {
  run_ranks(2, {}, [](Communicator& communicator, Stream& stream) {
    const bool odd = communicator.rank() == 1;
    std::vector<float> x(16);
    EXPECT_THAT(difference_of(communicator, stream,
                              [&] {
                                broadcast(communicator, {x.data(), x.data(), 16, DType::float32, odd ? 1 : 0}, stream);
                              }),
                HasSubstr("root: rank"));
    EXPECT_THAT(difference_of(
                    communicator, stream,
                    [&] {
                      all_reduce(communicator, {x.data(), x.data(), 8, odd ? DType::float16 : DType::bfloat16}, stream);
                    }),
                HasSubstr("float16"));
    EXPECT_THAT(difference_of(communicator, stream,
                              [&] {
                                if (odd)
                                  all_reduce(communicator, {x.data(), x.data(), 16, DType::float32}, stream);
                                else
                                  broadcast(communicator, {x.data(), x.data(), 16, DType::float32}, stream);
                              }),
                HasSubstr("collective"));
    EXPECT_THAT(difference_of(communicator, stream,
                              [&] {
                                if (odd)
                                  all_reduce(communicator, {x.data(), x.data(), 16, DType::float32}, stream);
                                else
                                  barrier(communicator, stream);
                              }),
                HasSubstr("barrier"));
  });
}

TEST(Agreement, MemoryThatIsSaidToBeSymmetricIsLookedForInTheHeap) {
  run_ranks(2, {}, [](Communicator& communicator, Stream& stream) {
    alignas(16) float own[16] = {};
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_reduce(communicator, {own, own, 16, DType::float32, Memory::symmetric}, stream);
                }),
                HasSubstr("are not in what rank"));
    const SymmetricSpan span = communicator.fabric().allocate(2 * sizeof own);
    auto* const here = span.data + (communicator.rank() == 1 ? sizeof own : 0);
    EXPECT_THAT(difference_of(communicator, stream,
                              [&] {
                                all_reduce(communicator, {here, here, 16, DType::float32, Memory::symmetric}, stream);
                              }),
                HasSubstr("first buffer's place in the heap"));
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_reduce(communicator, {here, here, 1 << 24, DType::float32, Memory::symmetric}, stream);
                }),
                HasSubstr("are not in what rank"));
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
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_reduce(communicator, {nullptr, x.data(), 16, DType::float32}, stream);
                }),
                HasSubstr("the input of 64 bytes is null"));
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_gather(communicator, {x.data(), nullptr, 8, DType::float32}, stream);
                }),
                HasSubstr("the output of 64 bytes is null"));
    const std::size_t huge = std::numeric_limits<std::size_t>::max() / 2;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const auto too_many = HasSubstr("is more than memory can hold");
      EXPECT_THAT(message_of<InvalidArgument>([&] {
                    all_to_all(communicator, {x.data(), x.data(), huge, dtype}, stream);
                  }),
                  too_many);
      EXPECT_THAT(message_of<InvalidArgument>([&] {
                    reduce_scatter(communicator, {x.data(), x.data(), huge, dtype}, stream);
                  }),
                  too_many);
      EXPECT_THAT(message_of<InvalidArgument>([&] {
                    broadcast(communicator, {x.data(), x.data(), huge, dtype}, stream);
                  }),
                  too_many);
    }
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  all_reduce(communicator, {x.data(), x.data() + 1, 16, DType::float32}, stream);
                }),
                HasSubstr("overlaps the output"));
    EXPECT_THAT(
        message_of<InvalidArgument>([&] {
          reduce_scatter(communicator, {x.data(), x.data() + 8 * (1 - communicator.rank()), 8, DType::float32}, stream);
        }),
        HasSubstr("is not in place"));
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

TEST(Agreement, ATeamThatRanksNameDifferentlyIsNamedOnEveryRank) {
  const auto message_with = [](const Ranks(&teams)[3], std::string_view expected) {
    ShmThreads world(3, {.heap_bytes = std::size_t{4} << 20});
    run_team(3, [&](TeamMember& member) {
      const auto fabric = world.rank(member.rank());
      ThreadPool pool(1);
      Stream stream(pool);
      EXPECT_THAT(message_of<InvalidArgument>([&] { Communicator(*fabric, teams[member.rank()], stream); }),
                  HasSubstr(expected));
      member.barrier();
    });
  };
  message_with({{0, 1, 2}, {1, 0, 2}, {0, 1, 2}}, "rank 0 names the team [0, 1, 2], but rank 1 of it names [1, 0, 2]");
  message_with({{0, 1}, {1, 2}, {2}}, "rank 0 names the team [0, 1], but rank 1 of it names [1, 2]");
}

// Of a GPU that has other SMs than those of its peers.
class WithSms : public CountedFabric {
 public:
  WithSms(Fabric& inner, int sms) : CountedFabric(inner), sms_(sms) {}
  DeviceShare device_share() const override { return {.ranks = 2, .sms = sms_}; }

 private:
  int sms_;
};

TEST(Agreement, ATeamOfRanksWithDifferentNumbersOfSmsIsNamedOnEveryRank) {
  const auto messages_with = [](const Ranks(&teams)[3], const int(&sms)[3]) {
    std::vector<std::string> messages(3);
    ShmThreads world(3, {.heap_bytes = std::size_t{8} << 20});
    run_team(3, [&](TeamMember& member) {
      const auto rank = static_cast<std::size_t>(member.rank());
      const auto inner = world.rank(member.rank());
      WithSms fabric(*inner, sms[rank]);
      ThreadPool pool(1);
      Stream stream(pool);
      messages[rank] = message_of<InvalidArgument>([&] { Communicator(fabric, teams[rank], stream); });
      member.barrier();
    });
    return messages;
  };
  EXPECT_THAT(messages_with({{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, {132, 132, 114}),
              Each(HasSubstr("rank 0 has 132 SMs, rank 2 has 114")));
  EXPECT_THAT(messages_with({{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, {132, 132, 132}), Each("no error"));
  EXPECT_THAT(messages_with({{0, 1}, {0, 1}, {2}}, {132, 132, 114}), Each("no error")) << "teams of their own";
}

}  // namespace
}  // namespace heddle
