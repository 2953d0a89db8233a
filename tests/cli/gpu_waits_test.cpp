// From stamps of blocks to waits of kernels, and from these to slices and to the report.
#include "cli/gpu_waits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/gpu_report.h"
#include "cli/perfetto_json.h"

namespace heddle {
namespace {

constexpr std::int64_t kAhead = 1'000'000'000;  // of the GPU's clock

GpuEntry grid(const char* name, std::int64_t begin, std::int64_t end, int blocks) {
  return {.name = name, .begin = begin, .end = end, .blocks = blocks, .waits = {}, .waited = 0};
}
GpuEntry clock_kernel(std::int64_t middle) {
  static const std::string name =
      short_kernel_name("heddle::nvlink::(anonymous namespace)::stamp_clock(unsigned long*)");
  return grid(name.c_str(), middle - 1000, middle + 1000, 1);
}
GpuWait stamped(int rank, int from, int block, int blocks, std::int64_t begin, std::int64_t end,
                const char* name = "gather") {
  return {.rank = rank,
          .from = from,
          .block = block,
          .blocks = blocks,
          .begin = begin + kAhead,
          .end = end + kAhead,
          .name = name};
}

// A GEMM of four blocks, in which rank 0 waits for two peers, between other kernels.
std::vector<GpuTrack> one_gpu() {
  return {
      {0, 5, {clock_kernel(0), clock_kernel(1'000'000)}},
      {0,
       7,
       {grid("norm", 40'000, 100'000, 4), grid("tile_gemm", 100'000, 200'000, 4), grid("norm", 200'000, 260'000, 4)}}};
}
std::vector<GpuWaits> of_rank(std::vector<GpuWait> waits, int device = 0) {
  return {{.device = device, .waits = std::move(waits), .dropped = 0, .clocks = {kAhead, kAhead + 1'000'000}}};
}
const GpuEntry& gemm_of(const std::vector<GpuTrack>& tracks) {
  return tracks.at(0).entries.at(1);
}

TEST(PlaceWaits, PutsWaitsOfBlocksTogetherByKernelAndPeer) {
  std::vector<GpuTrack> tracks = one_gpu();
  EXPECT_EQ(place_waits(tracks, of_rank({stamped(0, 1, 0, 4, 110'000, 150'000), stamped(0, 1, 2, 4, 120'000, 140'000),
                                         stamped(0, 2, 0, 4, 150'000, 160'000)})),
            0u);
  ASSERT_EQ(tracks.size(), 1u) << "kernels of the clock are the trace's own";
  const GpuEntry& gemm = gemm_of(tracks);
  ASSERT_EQ(gemm.waits.size(), 2u);
  const PeerWaits& first = gemm.waits.front();
  EXPECT_EQ(first.name, "gather");
  EXPECT_EQ(first.rank, 0);
  EXPECT_EQ(first.from, 1);
  EXPECT_EQ(first.blocks, 2);
  EXPECT_EQ(first.begin, 110'000);
  EXPECT_EQ(first.end, 150'000);
  EXPECT_EQ(first.sum, 60'000);
  EXPECT_EQ(first.longest, 40'000);
  EXPECT_EQ(gemm.waits.back().from, 2);
  EXPECT_EQ(gemm.waited, 70'000 / 4);  // two of four blocks never waited
  EXPECT_TRUE(tracks[0].entries[0].waits.empty());
  EXPECT_TRUE(tracks[0].entries[2].waits.empty());
}

TEST(PlaceWaits, CountsTheTimeOfABlockOnceWhereSeveralOfItsWarpsWait) {
  std::vector<GpuTrack> tracks = one_gpu();
  place_waits(tracks, of_rank({stamped(0, 1, 3, 4, 110'000, 130'000), stamped(0, 1, 3, 4, 120'000, 140'000),
                               stamped(0, 2, 3, 4, 115'000, 135'000)}));
  EXPECT_EQ(gemm_of(tracks).waits.front().sum, 30'000);
  EXPECT_EQ(gemm_of(tracks).waited, 30'000 / 4);
}

TEST(PlaceWaits, FollowsAClockThatDrifts) {
  std::vector<GpuTrack> tracks = one_gpu();
  std::vector<GpuWaits> waits = of_rank({stamped(0, 1, 0, 4, 220'000, 300'000)});
  waits.front().clocks.back() += 1'000'000;  // twice as fast as the trace's
  place_waits(tracks, waits);
  EXPECT_EQ(gemm_of(tracks).waits.at(0).begin, 110'000);
  EXPECT_EQ(gemm_of(tracks).waits.at(0).end, 150'000);
}

TEST(PlaceWaits, AWaitThatNeverEndedLastsUntilTheKernelsEnd) {
  std::vector<GpuTrack> tracks = one_gpu();
  std::vector<GpuWaits> waits = of_rank({stamped(0, 1, 0, 4, 150'000, 0)});
  waits.front().waits.front().end = 0;
  place_waits(tracks, waits);
  EXPECT_EQ(gemm_of(tracks).waits.at(0).sum, 50'000);
}

TEST(PlaceWaits, CountsWaitsWithoutARecordOfTheirKernel) {
  std::vector<GpuTrack> tracks = one_gpu();
  EXPECT_EQ(
      place_waits(tracks, of_rank({stamped(0, 1, 0, 4, 400'000, 500'000), stamped(0, 1, 0, 9, 110'000, 120'000)})), 2u);
  std::vector<GpuTrack> no_clock = {{0, 7, {grid("tile_gemm", 100'000, 200'000, 4)}}};
  EXPECT_EQ(place_waits(no_clock, of_rank({stamped(0, 1, 0, 4, 110'000, 120'000)})), 1u);
  std::vector<GpuTrack> no_records;
  EXPECT_EQ(place_waits(no_records, of_rank({stamped(0, 1, 0, 4, 110'000, 120'000)})), 1u);
}

// Ranks 0 and 1 run the same kernel at once. Rank 1's begins late, and rank 0 waits for it.
TEST(PlaceWaits, OfRanksThatShareAGpuGoToTheStreamsOfTheirRanks) {
  std::vector<GpuTrack> tracks = {
      {0, 5, {clock_kernel(0), clock_kernel(0), clock_kernel(1'000'000), clock_kernel(1'000'000)}},
      {0, 7, {grid("tile_gemm", 150'000, 200'000, 4)}},
      {0, 8, {grid("tile_gemm", 100'000, 200'000, 4)}}};
  std::vector<GpuWaits> waits = of_rank({stamped(0, 1, 0, 4, 100'000, 150'000), stamped(0, 1, 1, 4, 180'000, 190'000)});
  waits.push_back(of_rank({stamped(1, 0, 0, 4, 150'000, 170'000)}).front());
  EXPECT_EQ(place_waits(tracks, waits), 0u);
  ASSERT_EQ(tracks.size(), 2u);
  EXPECT_EQ(tracks[1].entries[0].waits.at(0).rank, 0);
  EXPECT_EQ(tracks[1].entries[0].waits.at(0).blocks, 2);
}

TEST(WaitTimes, AreByRankAndPeerAndKernel) {
  std::vector<GpuTrack> tracks = one_gpu();
  place_waits(tracks, of_rank({stamped(0, 1, 0, 4, 110'000, 120'000), stamped(0, 1, 1, 4, 110'000, 140'000),
                               stamped(0, 2, 0, 4, 130'000, 190'000), stamped(0, 1, 0, 4, 210'000, 220'000)}));
  const std::vector<WaitTime> times = wait_times(tracks);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].from, 2);  // the longest
  EXPECT_EQ(times[1].kernel, "tile_gemm");
  EXPECT_EQ(times[1].from, 1);
  EXPECT_DOUBLE_EQ(times[1].blocks, 2);
  EXPECT_DOUBLE_EQ(times[1].seconds, 20e-6);
  EXPECT_DOUBLE_EQ(times[1].longest, 30e-6);
  EXPECT_EQ(times[2].kernel, "norm");
  const GpuShares shares = gpu_shares(tracks).at(0);
  EXPECT_NEAR(shares.synchronous, (10e-6 + 30e-6 + 60e-6 + 10e-6) / 4, 1e-9);
  EXPECT_NEAR(shares.compute + shares.transfer + shares.synchronous + shares.idle, shares.seconds, 1e-12);
}

TEST(PerfettoJson, NestsWaitsInTheirKernelAndTellsOfTheirBlocks) {
  std::vector<GpuTrack> tracks = one_gpu();
  place_waits(tracks, of_rank({stamped(0, 1, 0, 4, 110'000, 150'000), stamped(0, 2, 1, 4, 120'000, 130'000),
                               stamped(0, 3, 2, 4, 140'000, 190'000)}));
  std::vector<nlohmann::ordered_json> slices;
  const nlohmann::ordered_json trace = perfetto_json({}, tracks);
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") slices.push_back(event);
  ASSERT_EQ(slices.size(), 6u);  // three kernels, three waits
  EXPECT_EQ(slices[1].at("name"), "tile_gemm");
  for (int i = 2; i < 5; ++i) {
    const auto& slice = slices[static_cast<std::size_t>(i)];
    EXPECT_EQ(slice.at("cat"), "wait");
    EXPECT_EQ(slice.at("name"), "gather");
    EXPECT_EQ(slice.at("args").at("for rank"), i - 1);
    EXPECT_EQ(slice.at("args").at("blocks"), 1);
    EXPECT_EQ(slice.at("tid"), slices[1].at("tid"));
  }
  EXPECT_EQ(slices[2].at("ts"), 70.0);  // from the first kernel's begin
  EXPECT_EQ(slices[2].at("dur"), 40.0);
  EXPECT_EQ(slices[3].at("ts"), 80.0);
  EXPECT_EQ(slices[3].at("dur"), 10.0);
  EXPECT_EQ(slices[4].at("ts"), 110.0);  // behind the first, which it outlasts
  EXPECT_EQ(slices[4].at("dur"), 40.0);
  EXPECT_EQ(slices[4].at("args").at("us from first to last"), 50.0);
}

// What Perfetto asks of slices of one thread.
TEST(PerfettoJson, OfTwoWaitsOneHoldsTheOtherOrEndsBeforeIt) {
  std::vector<GpuTrack> tracks = one_gpu();
  place_waits(tracks, of_rank({stamped(0, 1, 0, 4, 110'000, 150'000), stamped(0, 2, 1, 4, 120'000, 130'000),
                               stamped(0, 3, 2, 4, 140'000, 190'000), stamped(0, 4, 3, 4, 145'000, 160'000)}));
  struct Span {
    double begin, end;
  };
  std::vector<Span> waits;
  const nlohmann::ordered_json trace = perfetto_json({}, tracks);
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("cat") == "wait") {
      const double begin = event.at("ts").get<double>();
      waits.push_back({begin, begin + event.at("dur").get<double>()});
    }
  ASSERT_EQ(waits.size(), 4u);
  for (std::size_t i = 0; i < waits.size(); ++i)
    for (std::size_t j = i + 1; j < waits.size(); ++j) {
      EXPECT_LE(waits[i].begin, waits[j].begin);
      EXPECT_TRUE(waits[j].begin >= waits[i].end || waits[j].end <= waits[i].end) << i << ", " << j;
    }
}

}  // namespace
}  // namespace heddle
