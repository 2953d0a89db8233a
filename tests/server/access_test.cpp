// Who may ask, and whose turn it is.
#include "server/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/fair_work.h"
#include "server/places.h"

namespace heddle::server {
namespace {

TEST(Access, ANameThatBeginsLikeALoopbackAddressIsForeign) {
  for (const char* local : {"localhost", "LocalHost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"})
    EXPECT_TRUE(is_loopback(local)) << local;
  for (const char* foreign : {"127.evil.example", "127.0.0.1.evil.example", "evil.example", "localhost.evil.example",
                              "127.", "127.0.0.1.", "128.0.0.1", "0.0.0.0", "::2", "[::1", "::ffff:1.2.3.4", ""})
    EXPECT_FALSE(is_loopback(foreign)) << foreign;
}

TEST(Access, AReboundNameIsRefusedWhateverItsOrigin) {
  const AccessRules rules{.api_keys = {}, .admin_keys = {}, .only_local_hosts = true};
  for (const std::string host : {"127.evil.example:8525", "127.0.0.1.evil.example"})
    EXPECT_THROW(check_origin({.host = host, .origin = "http://" + host}, rules), ApiError) << host;
  EXPECT_NO_THROW(check_origin({.host = "127.0.0.1:8525", .origin = "http://127.0.0.1:8525"}, rules));
}

TEST(Places, AnOwnerCannotTakeThoseThatAreKeptForAnother) {
  Places places(64, 256, 2);
  int alice = 0;
  while (places.take(1, 1)) ++alice;
  EXPECT_EQ(alice, places.most_of_one());
  EXPECT_EQ(alice, 256);  // 320 less the 64 that are kept for bob
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(places.take(2, 1)) << i;
  EXPECT_FALSE(places.take(2, 1));
  EXPECT_EQ(places.taken(), 320);
  places.give_back(1, 1);
  EXPECT_TRUE(places.take(2, 1));  // a shared one
  EXPECT_FALSE(places.take(1, 1));
}

TEST(Places, AnOnlyOwnerHasAll) {
  Places places(1, 2, 0);
  EXPECT_FALSE(places.take(0, 4));
  EXPECT_TRUE(places.take(0, 3));
  EXPECT_FALSE(places.take(0, 1));
  places.give_back(0, 3);
  EXPECT_EQ(places.taken(), 0);
}

TEST(FairWork, AnotherOwnersWorkDoesNotWaitForAllOfOnes) {
  std::deque<std::function<void()>> actions;
  FairWork work([&](std::function<void()> action) { actions.push_back(std::move(action)); }, 1);
  std::vector<int> order;
  for (int i = 0; i < 60; ++i)
    work.add(1, FairWork::Kind::slow, [&] {
      order.push_back(1);
      const auto start = std::chrono::steady_clock::now();  // takes time, which counts
      while (std::chrono::steady_clock::now() == start) {
      }
    });
  actions.front()();
  actions.pop_front();
  work.add(2, FairWork::Kind::quick, [&] { order.push_back(2); });
  for (int i = 0; i < 2; ++i) {
    actions.front()();
    actions.pop_front();
  }
  EXPECT_THAT(std::vector(order.begin(), order.begin() + 3), testing::Contains(2));
}

TEST(FairWork, FormsLeaveAWorkerToQuickWork) {
  std::deque<std::function<void()>> actions;
  FairWork work([&](std::function<void()> action) { actions.push_back(std::move(action)); }, 2);
  const auto run = [&] {
    const auto action = std::move(actions.front());
    actions.pop_front();
    action();
  };
  std::vector<std::string> order;
  work.add(0, FairWork::Kind::slow, [&] {
    work.add(0, FairWork::Kind::slow, [&] { order.emplace_back("second form"); });
    work.add(0, FairWork::Kind::quick, [&] { order.emplace_back("quick"); });
    while (!actions.empty()) run();  // as the other worker does meanwhile
    order.emplace_back("first form");
  });
  while (!actions.empty()) run();
  EXPECT_THAT(order, testing::ElementsAre("quick", "first form", "second form"));
}

}  // namespace
}  // namespace heddle::server
