// Schedules that say what is computed during a transfer.
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "schedule/expect_proved.h"
#include "schedule/tile_order.h"
#include "schedule/token_split.h"
#include "schedule/torus.h"

namespace heddle::schedule {
namespace {

using ::testing::ElementsAre;

TEST(TorusSchedule, ExchangesAndComputesEverythingOnce) {
  for (int machines = 1; machines <= 16; ++machines)
    for (const int gpus : {1, 3}) {
      SCOPED_TRACE(::testing::Message() << machines << " machines of " << gpus);
      const Torus s = Torus::of(machines, gpus);
      expect_gather(s);
      EXPECT_TRUE(every_pair_computed_once(s));
      EXPECT_TRUE(works_on_what_is_there(s));
    }
}

TEST(TorusSchedule, StaysAmongTheGpusOfOneIndex) {
  const Torus s = Torus::of(3, 8);
  for (int rank = 0; rank < s.size; ++rank)
    for (int step = 0; step < s.steps(); ++step) {
      const TorusStep now = s.at(rank, step);
      if (now.to == kNobody) continue;
      EXPECT_EQ(s.gpu(now.to), s.gpu(rank));
      EXPECT_NE(s.machine(now.to), s.machine(rank));
    }
}

// Machine 1 of 3, as the text of 4.3 describes it: "computes; sends; gets".
TEST(TorusSchedule, IsThePapersExampleOfThreeMachines) {
  const Torus s = Torus::of(3, 1);
  const int t = 1;
  const auto tell = [&](int step) {
    const TorusStep now = s.at(t, step);
    const auto part = [](int index) { return index == kEveryOther ? std::string("*") : std::to_string(index); };
    const auto block = [&](int slot, int peer, int sequence, int head) {
      return std::string(s.tensor(slot) == TorusTensor::kQ    ? "Q"
                         : s.tensor(slot) == TorusTensor::kKv ? "KV"
                                                              : "O") +
             std::to_string(sequence) + std::to_string(head) + "@" + std::to_string(peer);
    };
    std::string line = "Q" + part(now.query) + " KV" + part(now.key_value);
    if (now.to == kNobody) return line;
    const bool output = s.tensor(now.send) == TorusTensor::kO;
    const int sent = s.part(now.send), got = s.part(now.receive);
    line += "; " + (output ? block(now.send, now.to, sent, t) : block(now.send, now.to, t, sent));
    line += "; " + (output ? block(now.receive, now.from, t, got) : block(now.receive, now.from, got, t));
    return line;
  };
  std::vector<std::string> told;
  for (int step = 0; step < s.steps(); ++step) told.push_back(tell(step));
  EXPECT_THAT(told, ElementsAre("Q1 KV1; Q12@2; Q01@0",    // Pull Q 1
                                "Q0 KV1; Q10@0; Q21@2",    // Pull Q 2
                                "Q2 KV1; KV12@2; KV01@0",  // Pull Q 3: Q(2) = t-N+1; KV for the first Pull KV stage
                                "Q* KV0; KV10@0; KV21@2",  // Pull KV 1
                                "Q* KV2",                  // Pull KV 2: computes only
                                "Q1 KV0; O01@0; O12@2",    // Push O
                                "Q1 KV2; O21@2; O10@0"));
}

TEST(TorusSchedule, OfOneMachineComputesAndSendsNothing) {
  const Torus s = Torus::of(1, 4);
  EXPECT_EQ(s.steps(), 1);
  EXPECT_EQ(s.at(2, 0).to, kNobody);
  EXPECT_FALSE(Torus::supports(0) || Torus::supports(2, 0));
}

// A test of the proof: with Pull KV's index as the paper prints it, one part never comes.
TEST(TorusSchedule, IsNotThePapersIndexWhichSendsAPartTwice) {
  struct AsPrinted : Torus {
    constexpr TorusStep at(int rank, int step) const {
      TorusStep now = Torus::at(rank, step);
      if (now.phase != TorusPhase::kPullKv || now.to == kNobody) return now;
      const int k = step - machines + 1;  // to t+k, where the stage before has just sent KV(t,t+1)
      now.to = mod(rank + k, machines);
      now.from = mod(rank - k, machines);
      now.send = slot(TorusTensor::kKv, now.to);
      now.receive = slot(TorusTensor::kKv, now.from);
      return now;
    }
  };
  EXPECT_TRUE(every_piece_arrives_once(Torus::of(4, 1)));
  EXPECT_FALSE(every_piece_arrives_once(AsPrinted{Torus::of(4, 1)}));
}

TEST(TokenSplitSchedule, IsThePapersExample) {  // 3.1.1: 300 blocks on 132 SMs
  const TokenTiles kernel[]{{.tile_tokens = 128, .blocks_per_tile = 1}};
  EXPECT_EQ(waves(kernel, 300 * 128, 132), 3);
  EXPECT_EQ(equal_split(kernel, 300 * 128, 128, 132), (TokenSplit{150 * 128, 150 * 128, 1}));
  EXPECT_EQ(smart_split(kernel, 300 * 128, 128, 132), (TokenSplit{132 * 128, 168 * 128, 0}));
}

struct SplitCase {
  int tokens, granule, num_sms;
  std::vector<TokenTiles> kernels;
};

TEST(TokenSplitSchedule, NeverAddsWavesWhereACutWithoutExists) {
  const SplitCase cases[]{
      {.tokens = 1024, .granule = 128, .num_sms = 132, .kernels = {{128, 32}}},
      {.tokens = 4096, .granule = 128, .num_sms = 132, .kernels = {{128, 10}, {128, 32}, {128, 56}, {128, 32}}},
      {.tokens = 4095,
       .granule = 128,
       .num_sms = 124,
       .kernels = {{128, 10}, {64, 32}}},  // a ragged end, SMs set aside
      {.tokens = 777, .granule = 16, .num_sms = 1, .kernels = {{16, 3}}},
      {.tokens = 129, .granule = 128, .num_sms = 132, .kernels = {{128, 1}}},     // one wave: every cut adds one
      {.tokens = 100, .granule = 7, .num_sms = 4, .kernels = {{16, 3}, {5, 1}}},  // a granule that fits no tile
  };
  for (const SplitCase& c : cases) {
    SCOPED_TRACE(c.tokens);
    const TokenSplit split = smart_split(c.kernels, c.tokens, c.granule, c.num_sms);
    EXPECT_EQ(split.prefix + split.suffix, c.tokens);
    EXPECT_EQ(split.prefix % c.granule, 0);
    EXPECT_GT(split.prefix, 0);
    EXPECT_GT(split.suffix, 0);
    EXPECT_EQ(waves(c.kernels, split.prefix, c.num_sms) + waves(c.kernels, split.suffix, c.num_sms),
              waves(c.kernels, c.tokens, c.num_sms) + split.extra_waves);
    const TokenSplit halves = equal_split(c.kernels, c.tokens, c.granule, c.num_sms);
    if (halves.prefix > 0) {
      EXPECT_LE(split.extra_waves, halves.extra_waves);
    }
    for (int prefix = c.granule; prefix < c.tokens; prefix += c.granule) {  // no other cut is better
      const TokenSplit other = split_at(c.kernels, prefix, c.tokens, c.num_sms);
      EXPECT_GE(other.extra_waves, split.extra_waves) << prefix;
      if (other.extra_waves == split.extra_waves) {
        EXPECT_GE(std::abs(other.prefix - other.suffix), std::abs(split.prefix - split.suffix)) << prefix;
      }
    }
  }
}

TEST(TokenSplitSchedule, LeavesWhatIsTooSmallInOnePiece) {
  const TokenTiles kernel[]{{.tile_tokens = 128, .blocks_per_tile = 32}};
  for (const int tokens : {0, 1, 127, 128})
    EXPECT_EQ(smart_split(kernel, tokens, 128, 132), (TokenSplit{0, tokens, 0}));
  EXPECT_EQ(equal_split(kernel, 255, 128, 132), (TokenSplit{0, 255, 0}));
  EXPECT_EQ(smart_split(kernel, 129, 128, 132).prefix, 128);
}

TEST(TokenSplitSchedule, DoesNotOverflow) {
  const TokenTiles kernel[]{{.tile_tokens = 1, .blocks_per_tile = 2'147'483'647}};
  EXPECT_EQ(waves(kernel, 2'147'483'647, 1), std::int64_t{2'147'483'647} * 2'147'483'647);
  const TokenTiles small[]{{.tile_tokens = 1 << 30, .blocks_per_tile = 1}};
  EXPECT_EQ(smart_split(small, 2'147'483'647, 1 << 30, 1).prefix, 1 << 30);
}

TEST(TileOrderSchedule, ReadsEachTileOnceAndEachRankFromOneSide) {
  for (int size = 1; size <= kLargestTeam; ++size)
    for (const int tiles : {1, 2, 5}) {
      SCOPED_TRACE(::testing::Message() << size << " ranks of " << tiles);
      EXPECT_TRUE(every_tile_read_once(TileOrder{size, tiles}));
      EXPECT_TRUE(no_owner_is_crowded(TileOrder{size, tiles}));
    }
  EXPECT_EQ((TileOrder{4, 0}.steps()), 0);
}

TEST(TileOrderSchedule, BeginsAtHome) {
  const TileOrder s{4, 2};
  std::vector<int> owners;
  for (int step = 0; step < s.steps(); ++step) owners.push_back(s.at(2, step).owner);
  EXPECT_THAT(owners, ElementsAre(2, 2, 3, 3, 0, 0, 1, 1));
}

}  // namespace
}  // namespace heddle::schedule
