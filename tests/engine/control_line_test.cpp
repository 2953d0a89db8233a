// Ranks that are processes, here threads with a fabric each: messages of rank 0, and what all must have in common.
#include "engine/control_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/team.h"
#include "engine/rank_facts.h"
#include "fabric/shm/threads.h"

namespace heddle {
namespace {

using testing::HasSubstr;

void on_lines(int ranks, const std::function<void(Fabric&, ControlLine&)>& rank_main) {
  ShmThreads world(ranks, {.heap_bytes = ControlLine::heap_bytes(ranks), .deadline = std::chrono::seconds(20)});
  run_team(ranks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    ControlLine line(*fabric);
    rank_main(*fabric, line);
  });
}

std::vector<std::byte> message_number(int number, std::size_t size) {
  std::vector<std::byte> message(size);
  for (std::size_t i = 0; i < size; ++i) message[i] = static_cast<std::byte>((number + 7 * i) % 251);
  return message;
}

// Rank 0 sends the next message when the others have the one before, as the sums of a step see to.
TEST(ControlLine, HandsEveryMessageToEveryRank) {
  constexpr int kMessages = 60;
  on_lines(3, [&](Fabric& fabric, ControlLine& line) {
    for (int i = 0; i < kMessages; ++i) {
      const auto expected = message_number(i, static_cast<std::size_t>(1 + i * i * 31));
      if (fabric.rank() == 0) {
        line.send(expected);
      } else {
        const auto received = line.receive();
        ASSERT_TRUE(std::ranges::equal(received, expected)) << i;
      }
      fabric.meet();
    }
    if (fabric.rank() == 0)
      line.send({});
    else
      EXPECT_TRUE(line.receive().empty());
  });
}

TEST(ControlLine, AMessageThatIsTooLargeIsAnError) {
  on_lines(1, [](Fabric&, ControlLine& line) {
    const std::vector<std::byte> huge(ControlLine::kMostBytes + 1);
    EXPECT_THROW(line.send(huge), Failure);
  });
}

TEST(ControlLine, ARankThatWaitsLearnsOfOneThatHasFailed) {
  on_lines(2, [](Fabric& fabric, ControlLine& line) {
    if (fabric.rank() == 0) return fabric.abandon();
    try {
      line.receive();
      ADD_FAILURE() << "no error";
    } catch (const Failure& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0"));
    }
  });
}

TEST(ControlLine, EveryRankGetsTheCauseThatAFailedOneTells) {
  on_lines(3, [](Fabric& fabric, ControlLine& line) {
    if (fabric.rank() == 1) fabric.abandon("rank 1: the disk has melted");
    try {
      while (true) fabric.rank() == 0 ? static_cast<void>(line.receive()) : line.check();
    } catch (const Failure& error) {
      EXPECT_STREQ(error.what(), "rank 1: the disk has melted") << fabric.rank();
    }
    fabric.abandon("what comes later is not the cause");
  });
}

TEST(ControlLine, ARankThatWaitsSleeps) {
  const auto cpu_seconds = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    const auto seconds = [](timeval time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  };
  on_lines(2, [&](Fabric& fabric, ControlLine& line) {
    if (fabric.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      line.send(message_number(1, 1));
      return;
    }
    const double before = cpu_seconds();
    line.receive();
    EXPECT_LT(cpu_seconds() - before, 0.2);  // under sanitizers, on a busy machine
  });
}

TEST(RankFacts, EqualOnesPassAndOthersNameTheRankAndItsValue) {
  on_lines(3, [](Fabric& fabric, ControlLine& line) {
    require_equal_facts(line, {{"--dtype", "auto"}, {"config.json", std::string(300, 'x')}});
    const bool other = fabric.rank() == 2;
    try {
      require_equal_facts(line, {{"--dtype", "auto"}, {"--compute", other ? "float32" : "auto"}});
      ADD_FAILURE() << "no error";
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(),
                   "rank 2 has --compute float32, rank 0 has --compute auto: the ranks of a model need the same");
    }
  });
}

TEST(RankFacts, OfAnotherBinaryAreAnErrorToo) {
  on_lines(2, [](Fabric& fabric, ControlLine& line) {
    std::vector<RankFact> mine{{"heddle", "1"}};
    if (fabric.rank() == 1) mine.push_back({"--new-option", "on"});
    EXPECT_THROW(require_equal_facts(line, mine), InputError);
  });
}

}  // namespace
}  // namespace heddle
