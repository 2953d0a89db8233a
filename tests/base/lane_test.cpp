#include "base/lane.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"

namespace heddle {
namespace {

TEST(Lane, OfTheCpuHasNoSmsWhateverIsAsked) {
  ThreadPool pool(1);
  Stream stream(pool);
  for (const int sms : {-1, 0, 7}) {
    const Lane lane(stream, sms);
    EXPECT_EQ(lane.num_sms, 0);
    EXPECT_EQ(lane.num_other_sms(), 0);
  }
}

TEST(Lane, IsMadeFromAStreamWithoutWorkspace) {
  ThreadPool pool(1);
  Stream stream(pool);
  const auto stream_of = [](const Lane& lane) {
    EXPECT_EQ(lane.workspace.data, nullptr);
    EXPECT_EQ(lane.workspace.size_bytes, 0U);
    return &lane.stream;
  };
  EXPECT_EQ(stream_of(stream), &stream);
}

TEST(Lane, KeepsItsSmsWithAnotherWorkspace) {
  ThreadPool pool(1);
  Stream stream(pool);
  std::byte bytes[8];
  const Lane lane(stream, 1, {bytes, 4});
  const Lane other = lane.with({bytes + 4, 3});
  EXPECT_EQ(other.workspace.data, bytes + 4);
  EXPECT_EQ(other.workspace.size_bytes, 3U);
  EXPECT_EQ(other.num_sms, lane.num_sms);
  EXPECT_EQ(&other.stream, &stream);
  EXPECT_EQ(lane.workspace.data, bytes);
}

}  // namespace
}  // namespace heddle
