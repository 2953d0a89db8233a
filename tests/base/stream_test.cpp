#include "base/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"

namespace heddle {
namespace {

using namespace std::chrono_literals;

TEST(Stream, RunsTasksInOrder) {
  ThreadPool pool(2);
  Stream stream(pool);
  std::vector<int> order;
  for (int i = 0; i < 3000; ++i)
    stream.enqueue([&order, i](ThreadPool&) { order.push_back(i); });  // more tasks than its ring holds
  stream.synchronize();
  ASSERT_EQ(order.size(), 3000u);
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Stream, SeveralHostsMayFillItsQueue) {
  ThreadPool pool(1);
  Stream stream(pool);
  int sum = 0;  // not atomic: tasks of one stream never run concurrently
  std::vector<std::jthread> hosts;
  for (int host = 0; host < 4; ++host)
    hosts.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) stream.enqueue([&sum](ThreadPool&) { ++sum; });
    });
  hosts.clear();
  stream.synchronize();
  EXPECT_EQ(sum, 8000);
}

TEST(Stream, TasksRunLoopsOnThePool) {
  ThreadPool pool(3);
  Stream stream(pool);
  std::atomic<int> pieces{0};
  stream.enqueue(
      [&](ThreadPool& threads) { threads.parallel_for(100, 1, [&](std::int64_t, std::int64_t) { ++pieces; }); });
  stream.synchronize();
  EXPECT_EQ(pieces, 100);
}

TEST(Stream, RethrowsTheFirstErrorOnceAndSkipsWhatFollows) {
  ThreadPool pool(1);
  Stream stream(pool);
  bool ran = false;
  stream.enqueue([](ThreadPool&) { throw std::runtime_error("first"); });
  stream.enqueue([&](ThreadPool&) { ran = true; });
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
  EXPECT_FALSE(ran);
  stream.enqueue([&](ThreadPool&) { ran = true; });
  stream.synchronize();
  EXPECT_TRUE(ran);
}

TEST(Stream, SynchronizeHasADeadline) {
  ThreadPool pool(1);
  std::atomic<bool> release{false};
  Stream stream(pool);
  stream.enqueue([&](ThreadPool&) {
    while (!release) std::this_thread::yield();
  });
  EXPECT_THROW(stream.synchronize(Deadline::after(10ms)), Timeout);
  release = true;
  stream.synchronize();
}

TEST(Stream, LetsGoOfWhatATaskHeld) {
  ThreadPool pool(1);
  Stream stream(pool);
  auto held = std::make_shared<int>(5);
  stream.enqueue([held](ThreadPool&) {});
  stream.synchronize();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Stream, FinishesItsQueueWhenItEnds) {
  ThreadPool pool(1);
  std::atomic<int> done{0};
  {
    Stream stream(pool);
    for (int i = 0; i < 100; ++i) stream.enqueue([&](ThreadPool&) { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(Event, OrdersTwoStreams) {
  ThreadPool pool(2);
  Stream producer(pool);
  Stream consumer(pool);
  Event full;
  Event empty;
  int slot = -1;  // not atomic: only the events order the accesses; ThreadSanitizer checks this
  std::vector<int> seen;
  for (int i = 0; i < 200; ++i) {
    if (i > 0) producer.wait(empty);
    producer.enqueue([&slot, i](ThreadPool&) { slot = i; });
    full.record(producer);
    consumer.wait(full);
    consumer.enqueue([&](ThreadPool&) { seen.push_back(slot); });
    empty.record(consumer);
  }
  consumer.synchronize();
  producer.synchronize();
  ASSERT_EQ(seen.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST(Event, SynchronizesTheHost) {
  ThreadPool pool(1);
  Stream stream(pool);
  Event event;
  int value = 0;
  stream.enqueue([&](ThreadPool&) { value = 9; });
  event.record(stream);
  event.synchronize();
  EXPECT_EQ(value, 9);
}

TEST(Event, IsRecordedBeforeItIsWaitedOn) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Event event;
  EXPECT_THROW(stream.wait(event), InvalidArgument);
  EXPECT_THROW(event.synchronize(), InvalidArgument);
}

TEST(Event, CompletesEvenWhenATaskBeforeItFailed) {
  ThreadPool pool(1);
  Stream stream(pool);
  Event event;
  stream.enqueue([](ThreadPool&) { throw std::runtime_error("task"); });
  event.record(stream);
  event.synchronize(Deadline::after(10s));
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
}

TEST(Event, StaysWithOneStream) {
  ThreadPool pool(1);
  Stream first(pool);
  Stream second(pool);
  Event event;
  event.record(first);
  event.record(first);
  EXPECT_THROW(event.record(second), InvalidArgument);
}

TEST(Event, AFailedStreamStillWaitsBeforeItsEventsComplete) {
  ThreadPool pool(1);
  std::atomic<bool> release{false};
  bool worked = false;
  Stream slow(pool);
  Stream failing(pool);
  Event slow_done;
  Event failing_done;
  slow.enqueue([&](ThreadPool&) {
    while (!release) std::this_thread::yield();
    worked = true;
  });
  slow_done.record(slow);
  failing.enqueue([](ThreadPool&) { throw std::runtime_error("task"); });
  failing.wait(slow_done);
  failing_done.record(failing);
  EXPECT_THROW(failing_done.synchronize(Deadline::after(20ms)), Timeout);
  release = true;
  failing_done.synchronize();
  EXPECT_TRUE(worked);
  EXPECT_THROW(failing.synchronize(), std::runtime_error);
}

TEST(Event, WaitHasADeadline) {
  ThreadPool pool(1);
  std::atomic<bool> release{false};
  Stream stream(pool);
  Event event;
  stream.enqueue([&](ThreadPool&) {
    while (!release) std::this_thread::yield();
  });
  event.record(stream);
  EXPECT_THROW(event.synchronize(Deadline::after(10ms)), Timeout);
  release = true;
}

TEST(Stream, OnAGpuNeedsABuildThatHasOne) {
  if constexpr (!kHaveCuda) {
    EXPECT_THROW(Stream(Device{DeviceKind::cuda, 0}), InvalidArgument);
    EXPECT_THROW(Event(Device{DeviceKind::cuda, 0}), InvalidArgument);
  }
}

}  // namespace
}  // namespace heddle
