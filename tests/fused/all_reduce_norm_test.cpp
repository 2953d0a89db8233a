// AllReduceNorm beyond the course (norm_cases.cpp): its protocol with several blocks a rank, how a call is cut, and what it
// refuses.
#include "fused/all_reduce_norm/all_reduce_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sanitizer.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "fabric/shm/threads.h"
#include "fused/all_reduce_norm/all_reduce_norm_programs.cuh"
#include "fused/all_reduce_norm/direct_norm_room.h"
#include "kernels/dry_run.h"

namespace heddle {
namespace {

using testing::HasSubstr;

TEST(EvenShards, AreThoseOfShards) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (std::int64_t total = 0; total < 13; ++total) {
      const Shards want = Shards::even(total, ranks);
      const EvenShards got = EvenShards::of(total, ranks);
      EXPECT_EQ(got.total(), total);
      EXPECT_EQ(got.largest(), want.largest());
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(got.begin(rank), want.begin(rank));
        EXPECT_EQ(got.end(rank), want.begins[rank + 1]);
        EXPECT_EQ(got.count(rank), want.count(rank));
      }
    }
}

struct Cut {
  std::int64_t tokens;
  int ranks, blocks;
  std::size_t x_bytes, y_bytes, slots_bytes;
};

// The three groups of warps of a block (pipelined_norm.cuh), of which all ranks have the same: whether all end with so many
// slots. Flags only grow, so it does not matter which group goes on first.
bool warps_end(std::uint32_t slots, std::uint32_t chunks) {
  enum Group { push, normalize, copy_out };
  std::uint32_t told[3] = {}, next[3] = {};
  const auto is_ready = [&](Group group, std::uint32_t c) {
    const auto freed = [&](Group by) { return c < slots || told[by] >= c - slots + 1; };
    switch (group) {
      case push:
        return freed(normalize);
      case normalize:
        return told[push] >= c + 1 && freed(copy_out);
      case copy_out:
        return told[normalize] >= c + 1;
    }
    return false;
  };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const Group group : {push, normalize, copy_out}) {
      const std::uint32_t c = next[group];
      if (c > chunks || (c < chunks && !is_ready(group, c))) continue;
      told[group] = c;  // of what was done before, as chunk_by_chunk() tells
      next[group] = c + 1;
      goes_on = true;
    }
  }
  return told[copy_out] == chunks;
}

TEST(NormChunks, HaveSlotsEnoughThatNoGroupOfWarpsWaitsForWhatItHolds) {
  for (std::uint32_t chunks = 0; chunks < 40; ++chunks)
    for (std::uint32_t slots = NormChunks::kFewestSlots; slots <= NormChunks::kMostSlots; ++slots)
      EXPECT_TRUE(warps_end(slots, chunks)) << slots << " slots, " << chunks << " chunks";
  EXPECT_FALSE(warps_end(NormChunks::kFewestSlots - 1, 8)) << "fewer slots would do";
}

TEST(DirectNormRoom, KeepsWhatABlockHoldsApartAndAligned) {
  struct Rows {
    std::size_t hidden, x_bytes;
    int ranks;
  };
  for (const Rows& of : {Rows{8192, 2, 2}, Rows{8192, 2, 8}, Rows{4096, 2, 4}, Rows{64, 2, 3}, Rows{4096, 4, 2},
                         Rows{2048, 4, 5}, Rows{5120, 2, 1}, Rows{8, 4, 24}}) {
    const std::size_t x = of.hidden * of.x_bytes;
    ASSERT_TRUE(DirectNormRoom::fits(of.hidden, x, x, of.ranks)) << of.hidden;
    const DirectNormRoom room(of.hidden, x, of.ranks);
    std::vector<std::pair<std::size_t, std::size_t>> places;
    for (std::uint32_t slot = 0; slot < room.residuals(); ++slot)
      places.emplace_back(room.residual(slot), 4 * of.hidden);
    for (std::uint32_t slot = 0; slot < room.shares(); ++slot) places.emplace_back(room.share(slot), x);
    std::ranges::sort(places);
    std::size_t end = 0;
    for (const auto& [at, size] : places) {
      EXPECT_GE(at, end) << of.hidden;
      EXPECT_EQ(at % 16, 0u) << of.hidden;
      end = at + size;
    }
    EXPECT_EQ(end, room.bytes());
    EXPECT_LE(end, DirectNormRoom::kMostBytes);
    EXPECT_GE(room.residuals(), 1u);
    EXPECT_LE(room.residuals(), DirectNormRoom::kMostResiduals);
    EXPECT_GE(room.shares(), static_cast<std::uint32_t>(of.ranks));
    EXPECT_LE(room.shares(), DirectNormRoom::kMostShares);
    EXPECT_EQ(room.shares() % (room.groups() * static_cast<std::uint32_t>(of.ranks)), 0u) << "a slot is one group's";
    EXPECT_EQ(room.residuals() % room.groups(), 0u);
    EXPECT_GE(room.residuals(), room.groups());
  }
  EXPECT_FALSE(DirectNormRoom::fits(8192, 16384, 16384, 13)) << "a row of all ranks is 240 KB";
  EXPECT_FALSE(DirectNormRoom::fits(4, 8, 8, 2)) << "TMA copies multiples of 16 bytes";
  EXPECT_FALSE(DirectNormRoom::fits(64, 128, 256, 2)) << "y has no room over x";
}

TEST(NormChunks, CoverEveryRowOnceAndKeepSlotsApart) {
  for (const Cut& c :
       {Cut{1, 3, 4, 48, 24, 4096}, Cut{7, 2, 3, 16, 16, 1024}, Cut{100, 4, 5, 80, 160, 1 << 16},
        Cut{65, 4, 16, 32, 64, 1 << 14}, Cut{5, 1, 2, 2, 2, 128}, Cut{4096, 2, 16, 8192, 8192, 16 << 20}}) {
    const EvenShards rows = EvenShards::of(c.tokens, c.ranks);
    const NormChunks cut(rows, c.x_bytes, c.y_bytes, c.blocks, c.slots_bytes);
    ASSERT_LE(cut.blocks(), c.blocks);
    ASSERT_GE(cut.slots(), NormChunks::kFewestSlots);
    EXPECT_TRUE(cut.chunk_rows() == 1 || static_cast<std::size_t>(cut.chunk_rows()) * std::max(c.x_bytes, c.y_bytes) <=
                                             NormChunks::kMostChunkBytes);
    std::set<std::pair<std::size_t, std::size_t>> places;  // of all shares and rows in all slots
    for (int owner = 0; owner < c.ranks; ++owner) {
      std::vector<int> seen(static_cast<std::size_t>(rows.count(owner)));
      for (int block = 0; block < cut.blocks(); ++block)
        for (std::uint32_t chunk = 0; chunk < cut.chunks(block); ++chunk)
          for (std::int64_t row = 0; row < cut.rows(rows.count(owner), block, chunk); ++row)
            ++seen.at(static_cast<std::size_t>(cut.first_row(block, chunk) + row));
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << c.tokens << " tokens, owner " << owner;
    }
    for (int block = 0; block < cut.blocks(); ++block)
      for (std::uint32_t slot = 0; slot < cut.slots(); ++slot)
        for (int rank = 0; rank < c.ranks; ++rank) {
          const auto of_rows = static_cast<std::size_t>(cut.chunk_rows());
          places.emplace(cut.share(rank, block, slot), of_rows * c.x_bytes);
          places.emplace(cut.normed(rank, block, slot), of_rows * c.y_bytes);
        }
    EXPECT_EQ(places.size(),
              2 * static_cast<std::size_t>(cut.blocks()) * cut.slots() * static_cast<std::size_t>(c.ranks));
    std::size_t end = 0;
    for (const auto& [at, size] : places) {
      EXPECT_GE(at, end);
      end = at + size;
    }
    EXPECT_LE(end, c.slots_bytes);
  }
}

// Peers whose memory sometimes takes long to reach, while flags and packets do not.
struct LatePeers : Peers {
  template <class T>
  T* at(int peer, T* local) const {
    thread_local std::uint32_t state = static_cast<std::uint32_t>(rank) * 97u + 5;
    state = state * 1664525u + 1013904223u;
    if (std::is_same_v<T, std::byte> && peer != rank && (state >> 16) % 64 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    return Peers::at(peer, local);
  }
};

constexpr int kNormEpochs = kThreadSanitizer ? 150 : 600;

constexpr std::int64_t kNormHidden = 20;

// Each thread is one block of one rank; the blocks of a rank meet between calls, as at a kernel's end. Numbers of blocks,
// tokens and regimes change from call to call.
class NormBlocks : public testing::TestWithParam<std::pair<int, int>> {
 protected:
  static constexpr std::size_t kBuffer = 16384, kSlots = 4096;
  static constexpr std::int64_t kTokens = 13;
  static constexpr std::size_t kRows = kTokens * kNormHidden * sizeof(float);

  void SetUp() override {
    const auto ranks = static_cast<std::size_t>(GetParam().first);
    const std::size_t flags = AllReduceNormMemory::kMostBlocks * ranks * sizeof(std::uint64_t);
    for (std::size_t r = 0; r < ranks; ++r) {
      heaps_.emplace_back((kInboxBuffers * kBuffer + kSlots + 3 * flags + 2 * kRows) / sizeof(Packet));
      states_.emplace_back(AllReduceNormMemory::kMostBlocks);
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      auto* next = reinterpret_cast<std::byte*>(heaps_[r].data());
      const auto take = [&](std::size_t bytes) { return std::exchange(next, next + bytes); };
      AllReduceNormMemory memory{.inbox = take(kInboxBuffers * kBuffer), .buffer_bytes = kBuffer};
      std::memset(memory.inbox, 0xff, kInboxBuffers * kBuffer);
      memory.slots = take(kSlots);
      memory.slots_bytes = kSlots;
      for (std::uint64_t** of : {&memory.shares_come, &memory.rows_come, &memory.rows_taken})
        *of = reinterpret_cast<std::uint64_t*>(take(flags));
      memory.blocks = states_[r].data();
      memories_.push_back(memory);
      x_.push_back(reinterpret_cast<float*>(take(kRows)));
      y_.push_back(reinterpret_cast<float*>(take(kRows)));
      LatePeers peers{
          {.rank = static_cast<int>(r), .size = static_cast<int>(ranks), .waits = {&record_, 20'000'000'000}}};
      for (std::size_t p = 0; p < ranks; ++p) peers.heaps[p] = reinterpret_cast<std::byte*>(heaps_[p].data());
      peers_.push_back(peers);
    }
  }

  WaitRecord record_;
  std::vector<std::vector<Packet>> heaps_;
  std::vector<std::vector<NormBlockState>> states_;
  std::vector<AllReduceNormMemory> memories_;
  std::vector<float*> x_, y_;  // symmetric
  std::vector<LatePeers> peers_;
};

TEST_P(NormBlocks, AgreeInEveryRegimeOverManyCalls) {
  const auto [ranks, most_blocks] = GetParam();
  std::vector<std::vector<float>> residuals(static_cast<std::size_t>(ranks), std::vector<float>(kTokens * kNormHidden));
  const std::vector<float> weight(kNormHidden, 1);
  const auto value = [](int epoch, int rank, std::int64_t i) {
    return static_cast<float>((epoch * 7 + rank * 5 + i * 3) % 11 - 5);
  };
  std::vector<std::unique_ptr<std::barrier<>>> ends;
  for (int r = 0; r < ranks; ++r) ends.push_back(std::make_unique<std::barrier<>>(most_blocks));
  const auto block_of = [&, ranks = ranks, most_blocks = most_blocks](int r, int b) {
    float* const x = x_[static_cast<std::size_t>(r)];
    float* const y = y_[static_cast<std::size_t>(r)];
    float* const residual = residuals[static_cast<std::size_t>(r)].data();
    std::barrier<>& end = *ends[static_cast<std::size_t>(r)];
    std::uint32_t shared = 1;
    for (int epoch = 0; epoch < kNormEpochs; ++epoch) {
      shared = shared * 1664525u + 1013904223u;
      const std::int64_t tokens = 1 + (shared >> 8) % kTokens;
      const auto regime =
          static_cast<AllReduceNormRegime>(tokens < ranks ? (shared >> 20) % 2 * 2 : (shared >> 20) % 3);
      const bool direct = (shared >> 23) % 2 == 1;
      const int blocks = 1 + static_cast<int>((shared >> 24) % static_cast<std::uint32_t>(most_blocks));
      const EvenShards rows = EvenShards::of(tokens, ranks);
      if (b == 0)
        for (std::int64_t i = 0; i < tokens * kNormHidden; ++i) {
          x[i] = value(epoch, r, i);
          residual[i] = 1;
          y[i] = -99;
        }
      end.arrive_and_wait();
      const auto view = [&](float* data) { return Tensor{data, tokens, kNormHidden, kNormHidden, DType::float32}; };
      const AllReduceNormParams params{
          .x = view(x), .weight = weight.data(), .residual = view(residual), .y = view(y), .eps = 1e-6f};
      with_norm_program<float, float>(params, rows, {regime, direct, blocks}, kSlots, [&](const auto& program) {
        int taken = blocks;
        if constexpr (requires { program.chunks; }) taken = program.chunks.blocks();
        if (b < taken)
          program(HostThread{b, taken}, peers_[static_cast<std::size_t>(r)], memories_[static_cast<std::size_t>(r)]);
      });
      end.arrive_and_wait();
      if (b != 0 || HasFailure()) continue;
      for (std::int64_t token = 0; token < tokens; ++token) {
        float squares = 0;
        std::vector<float> z(kNormHidden, 1);
        for (std::int64_t i = 0; i < kNormHidden; ++i) {
          for (int p = 0; p < ranks; ++p) z[static_cast<std::size_t>(i)] += value(epoch, p, token * kNormHidden + i);
          squares += z[static_cast<std::size_t>(i)] * z[static_cast<std::size_t>(i)];
        }
        const float factor = 1 / std::sqrt(squares / kNormHidden + 1e-6f);
        const bool here = regime == AllReduceNormRegime::one_shot || (token >= rows.begin(r) && token < rows.end(r));
        for (std::int64_t i = 0; i < kNormHidden; ++i) {
          const std::int64_t at = token * kNormHidden + i;
          EXPECT_NEAR(y[at], z[static_cast<std::size_t>(i)] * factor, 1e-5)
              << "epoch " << epoch << " " << name_of(regime) << " rank " << r << " token " << token << " of " << tokens;
          EXPECT_EQ(residual[at], here ? z[static_cast<std::size_t>(i)] : 1)
              << "epoch " << epoch << " " << name_of(regime) << " rank " << r << " token " << token;
        }
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r)
      for (int b = 0; b < most_blocks; ++b) threads.emplace_back(block_of, r, b);
  }
  EXPECT_EQ(record_.state, WaitRecord::empty) << record_.tag.view();
}

INSTANTIATE_TEST_SUITE_P(, NormBlocks,
                         testing::Values(std::pair(2, 1), std::pair(2, 3), std::pair(3, 2), std::pair(4, 2)),
                         [](const auto& test) {
                           return std::to_string(test.param.first) + "_ranks_of_" + std::to_string(test.param.second);
                         });

TEST(AllReduceNormFailure, ARankThatDoesNotComeIsNamedInEveryRegime) {
  constexpr int kRanks = 2;
  constexpr AllReduceNormOptions kOptions{.row_bytes = 1024};
  for (const auto& [regime, direct] :
       {std::pair(AllReduceNormRegime::one_shot, false), std::pair(AllReduceNormRegime::two_phase, false),
        std::pair(AllReduceNormRegime::pipelined, false), std::pair(AllReduceNormRegime::pipelined, true)}) {
    ShmThreads world(kRanks, {.heap_bytes = AllReduceNorm::heap_bytes(kRanks, {}, kOptions) + 4096,
                              .deadline = std::chrono::milliseconds(300)});
    std::string message;
    run_team(kRanks, [&](TeamMember& member) {
      const auto fabric = world.rank(member.rank());
      ThreadPool pool(1);
      Stream stream(pool);
      AllReduceNorm fused(*fabric, {0, 1}, stream, kOptions);
      fused.force(regime);
      std::vector<float> residual(4 * 8, 1), weight(8, 1);
      auto* const rows = reinterpret_cast<float*>(fused.row_memory().data());
      const auto view = [](float* data) { return Tensor{data, 4, 8, 8, DType::float32}; };
      if (member.rank() == 0) {
        fused({.x = view(rows),
               .weight = weight.data(),
               .residual = view(residual.data()),
               .y = view(rows + 64),
               .symmetric = direct},
              stream);
        try {
          fabric->synchronize(stream);
        } catch (const Timeout& timeout) {
          message = timeout.what();
        }
      }
      member.barrier();
    });
    EXPECT_THAT(message, testing::AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("norm: ")));
  }
}

class AllReduceNormCalls : public testing::Test {
 protected:
  ShmThreads world_{1, {.heap_bytes = AllReduceNorm::heap_bytes(1, {}) + 4096}};
  std::unique_ptr<Fabric> fabric_ = world_.rank(0);
  ThreadPool pool_{1};
  Stream stream_{pool_};
  AllReduceNorm fused_{*fabric_, {0}, stream_};
  std::vector<float> x_ = std::vector<float>(64, 1), residual_ = x_, y_ = x_, weight_ = x_;

  static Tensor view(std::vector<float>& data) { return {data.data(), 4, 8, 8, DType::float32}; }
  AllReduceNormParams good() {
    return {.x = view(x_), .weight = weight_.data(), .residual = view(residual_), .y = view(y_)};
  }
  std::string refusal(const AllReduceNormParams& params) {
    try {
      fused_(params, stream_);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(AllReduceNormCalls, RefuseWhatDoesNotFitAndSayWhy) {
  EXPECT_EQ(refusal(good()), "accepted");
  auto bad = good();
  bad.y.rows = 3;
  EXPECT_EQ(refusal(bad), "all_reduce_norm: y is [3, 8], x [4, 8]");
  bad = good();
  bad.x.row_stride = bad.residual.row_stride = 9;
  EXPECT_EQ(refusal(bad), "all_reduce_norm: rows of x lie 9 elements apart and have 8");
  bad = good();
  bad.residual.dtype = DType::bfloat16;
  EXPECT_EQ(refusal(bad), "all_reduce_norm: the residual is bfloat16, expected float32");
  bad = good();
  bad.weight = nullptr;
  EXPECT_EQ(refusal(bad), "all_reduce_norm: the weight has no data");
  bad = good();
  bad.eps = -1;
  EXPECT_THAT(refusal(bad), HasSubstr("eps is -1"));
  bad = good();
  bad.num_sms = 133;
  EXPECT_EQ(refusal(bad), "all_reduce_norm: 133 SMs, expected 1 to 132");
  bad = good();
  bad.symmetric = true;
  fused_.force(AllReduceNormRegime::pipelined);
  EXPECT_EQ(refusal(bad), "all_reduce_norm: x and y are not in symmetric memory");
  EXPECT_THAT(fused_.why_not(1 << 20, DType::float32, DType::float32), HasSubstr("do not fit 3 times into slots"));
  fabric_->synchronize(stream_);
}

TEST_F(AllReduceNormCalls, OnOneRankNormaliseAsWithoutRanks) {
  for (const auto regime :
       {AllReduceNormRegime::one_shot, AllReduceNormRegime::two_phase, AllReduceNormRegime::pipelined}) {
    fused_.force(regime);
    std::fill(residual_.begin(), residual_.end(), 1.0f);
    fused_(good(), stream_);
    fabric_->synchronize(stream_);
    EXPECT_EQ(std::vector<float>(residual_.begin(), residual_.begin() + 32), std::vector<float>(32, 2));
    for (int i = 0; i < 32; ++i) EXPECT_NEAR(y_[static_cast<std::size_t>(i)], 1, 1e-6);
  }
}

TEST_F(AllReduceNormCalls, EnqueueNothingInADryRunOrForNoTokens) {
  DryRun run{Device{}};
  fused_(good(), run.lane());
  auto none = good();
  none.x.rows = none.residual.rows = none.y.rows = 0;
  fused_(none, stream_);
  fabric_->synchronize(stream_);
  EXPECT_EQ(residual_, x_);
}

}  // namespace
}  // namespace heddle
