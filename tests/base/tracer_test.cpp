// Traces of CPU streams, and the report's partition of a step.
#include "base/tracer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "base/trace_report.h"

namespace heddle {
namespace {

const TraceEntry* entry_named(const TraceTrack& track, std::string_view name) {
  const auto found = std::ranges::find_if(track.entries(), [&](const TraceEntry& entry) { return entry.name == name; });
  return found == track.entries().end() ? nullptr : &*found;
}

TEST(Tracer, RecordsTasksSpansAndWaitsOfStreamsThatAreMadeWhileItLives) {
  ThreadPool pool(1);
  Stream before(pool);
  Tracer tracer;
  Stream stream(pool);
  {
    const Span step(stream, "step", 7);
    stream.enqueue([](ThreadPool&) {
      TracedWait wait(2, 3, "flag");
      wait.begin();
      TracedWait no_wait(2, 3, "found at once");
    });
  }
  { const Span span(before, "not recorded"); }
  stream.synchronize();
  before.synchronize();

  ASSERT_EQ(tracer.tracks().size(), 1u);
  const TraceTrack& track = *tracer.tracks().front();
  const TraceEntry* const step = entry_named(track, "step");
  const TraceEntry* const wait = entry_named(track, "flag");
  ASSERT_NE(step, nullptr);
  ASSERT_NE(wait, nullptr);
  EXPECT_EQ(step->index, 7);
  EXPECT_EQ(wait->index, 3);
  EXPECT_EQ(track.rank(), 2);
  EXPECT_LE(step->begin, wait->begin);
  EXPECT_LE(wait->end, step->end);
  EXPECT_EQ(entry_named(track, "found at once"), nullptr);
  EXPECT_EQ(entry_named(track, "not recorded"), nullptr);
}

// Viewers drop what lies across the edge of a span.
TEST(Tracer, TasksLieInsideSpansOrOutside) {
  ThreadPool pool(1);
  Tracer tracer;
  Stream stream(pool);
  {
    const Span outer(stream, "outer");
    stream.enqueue([](ThreadPool&) { const TracedSection sending("transfer"); });
    const Span inner(stream, "inner");
    stream.enqueue([](ThreadPool&) {});
  }
  stream.synchronize();
  const std::vector<TraceEntry>& entries = tracer.tracks().front()->entries();
  EXPECT_EQ(std::ranges::count_if(entries, [](const TraceEntry& e) { return e.kind == TraceKind::task; }), 2);
  EXPECT_EQ(std::ranges::count_if(entries, [](const TraceEntry& e) { return e.kind == TraceKind::span; }), 3);
  for (const TraceEntry& a : entries)
    for (const TraceEntry& b : entries)
      EXPECT_FALSE(a.begin < b.begin && b.begin < a.end && a.end < b.end) << a.name << " and " << b.name;
}

TEST(Tracer, AWaitNamesTheRankThatWasLateAndEndsOnce) {
  ThreadPool pool(1);
  Tracer tracer;
  Stream stream(pool);
  stream.enqueue([](ThreadPool&) {
    TracedWait wait(2, 3, "packets");
    wait.begin();
    wait.end();
  });
  stream.synchronize();
  const TraceTrack& track = *tracer.tracks().front();
  ASSERT_EQ(track.entries().size(), 2u);  // the wait and its task
  EXPECT_EQ(track.entries().front().name, "packets");
  EXPECT_EQ(track.entries().front().index, 3);
}

TEST(Tracer, KeepsWhatKernelsSayOfTheirWaits) {
  Tracer tracer;
  tracer.add({.device = 1, .waits = {}, .dropped = 7, .clocks = {1, 2}});
  ASSERT_EQ(tracer.gpu_waits().size(), 1u);
  EXPECT_EQ(tracer.gpu_waits().front().dropped, 7u);
}

TEST(Tracer, OneAtATime) {
  const Tracer tracer;
  EXPECT_THROW(Tracer(), InvalidArgument);
}

TEST(StepShares, EachInstantOfAStepIsInOnePart) {
  std::vector<std::unique_ptr<TraceTrack>> tracks;
  TraceTrack& main = *tracks.emplace_back(std::make_unique<TraceTrack>());
  main.set_rank(1);
  main.add(TraceKind::span, "step", -1, 0, 1000);
  main.add(TraceKind::task, "task", -1, 0, 400);
  main.add(TraceKind::task, "task", -1, 450, 1200);  // ends behind the step
  main.add(TraceKind::wait, "flag", 0, 100, 150);    // in computation
  main.add(TraceKind::span, "all_reduce", -1, 500, 700);
  main.add(TraceKind::wait, "flag", 0, 650, 700);  // in the transfer
  main.add(TraceKind::event, "event", -1, 900, 950);
  TraceTrack& transfers = *tracks.emplace_back(std::make_unique<TraceTrack>());
  transfers.set_rank(1);
  transfers.add(TraceKind::task, "task", -1, 0, 300);
  transfers.add(TraceKind::span, "transfer", -1, 100, 300);
  transfers.add(TraceKind::wait, "credit", 0, 250, 300);
  TraceTrack& other_rank = *tracks.emplace_back(std::make_unique<TraceTrack>());
  other_rank.add(TraceKind::span, "transfer", -1, 0, 1000);

  const std::vector<StepShares> all = step_shares(tracks);
  ASSERT_EQ(all.size(), 1u);
  const StepShares& shares = all.front();
  EXPECT_EQ(shares.rank, 1);
  EXPECT_EQ(shares.steps, 1);
  EXPECT_DOUBLE_EQ(shares.step_seconds, 1000e-9);
  EXPECT_DOUBLE_EQ(shares.launch, 50e-9);
  EXPECT_DOUBLE_EQ(shares.synchronous, 100e-9);
  EXPECT_DOUBLE_EQ(shares.transfer, 200e-9);
  EXPECT_NEAR(shares.compute, 650e-9, 1e-15);
  EXPECT_NEAR(shares.compute + shares.transfer + shares.launch + shares.synchronous, shares.step_seconds, 1e-15);
  EXPECT_DOUBLE_EQ(shares.hidden_transfer, 150e-9);
}

TEST(StepShares, AStepIsNamedByTheOutermostSpanAroundIt) {
  std::vector<std::unique_ptr<TraceTrack>> tracks;
  TraceTrack& track = *tracks.emplace_back(std::make_unique<TraceTrack>());
  track.add(TraceKind::span, "linear", -1, 10, 20);  // begins with its step
  track.add(TraceKind::span, "step", -1, 10, 100);
  track.add(TraceKind::span, "inner", -1, 5, 150);
  track.add(TraceKind::span, "outer", -1, 0, 200);
  track.add(TraceKind::span, "before", -1, 210, 290);
  track.add(TraceKind::span, "linear", -1, 300, 310);
  track.add(TraceKind::span, "step", -1, 300, 400);
  const std::vector<StepShares> all = step_shares(tracks);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].label, "outer");
  EXPECT_EQ(all[1].label, "");
}

TEST(StepShares, StepsInSpansOfTheirOwnAreToldApartAndHandoversAreTimedBySize) {
  std::vector<std::unique_ptr<TraceTrack>> tracks;
  TraceTrack& track = *tracks.emplace_back(std::make_unique<TraceTrack>());
  track.add(TraceKind::span, "step", -1, 10, 100);
  track.add(TraceKind::span, "bsp", -1, 0, 200);
  track.add(TraceKind::span, "step", -1, 310, 400);
  track.add(TraceKind::span, "push", -1, 300, 500);
  track.add(TraceKind::task, "task", -1, 320, 390);
  track.add(TraceKind::span, kHandover, 3, 311, 312);
  track.add(TraceKind::span, kHandover, 1, 313, 314);
  track.add(TraceKind::span, kHandover, 9, 450, 451);  // in no step

  const std::vector<StepShares> all =
      step_shares(tracks, [](std::int64_t bytes) { return bytes == 3072 ? 30e-9 : 5e-9; });
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].label, "bsp");
  EXPECT_DOUBLE_EQ(all[0].step_seconds, 90e-9);
  EXPECT_EQ(all[0].inter_kernel, 0);
  EXPECT_EQ(all[1].label, "push");
  EXPECT_DOUBLE_EQ(all[1].inter_kernel, 35e-9);
  // It is of computation and transfer, which took 70 ns.
  EXPECT_DOUBLE_EQ(step_shares(tracks, [](std::int64_t) { return 1.0; })[1].inter_kernel, 70e-9);
}

}  // namespace
}  // namespace heddle
