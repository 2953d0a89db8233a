// The programs by which fused operators of few rows gather and reduce on GPUs (push_small_m.cuh, reduce_small_m.cuh),
// on ranks that share memory, with a thread for each block of each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/sanitizer.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "device/kernel_end.h"
#include "fabric/shm/threads.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/all_gather_linear/push_small_m.cuh"
#include "fused/course_rank.h"
#include "fused/linear_all_reduce/linear_all_reduce.h"
#include "fused/linear_reduce_scatter/reduce_small_m.cuh"

namespace heddle {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kFewRows = 9, kFewColumns = 26;
constexpr int kSmallCalls = kThreadSanitizer ? 30 : 150, kInFlight = 5, kMostTestBlocks = 3;
constexpr std::size_t kGuard = 8;  // bytes or floats behind a result, which stay as they were

// One rank of a run: its inbox, and calls that follow each other without a barrier.
class SmallRank {
 public:
  // `packets`: from a rank to another.
  SmallRank(Fabric& fabric, std::size_t packets)
      : fabric_(&fabric),
        inbox_(fabric, PacketInbox::buffer_bytes_for(fabric.size(), packets)),
        peers_(fabric.peers(world_of(fabric))) {}

  int rank() const { return peers_.rank; }
  int size() const { return peers_.size; }
  const PacketMemory& memory() const { return inbox_.memory(); }

  // Enqueues the program as a kernel of some blocks, which start when they like.
  template <class Program>
  void enqueue(const Program& given) {
    const int blocks = static_cast<int>(own_.between(1, kMostTestBlocks));
    const auto late = [&] { return std::chrono::microseconds(own_.between(0, 4) == 0 ? own_.between(0, 100) : 0); };
    std::vector<std::chrono::microseconds> delays;
    for (int block = 0; block < blocks; ++block) delays.push_back(late());
    stream_.enqueue([this, kernel = std::make_shared<const Program>(given), delays](ThreadPool&) {
      const Program& program = *kernel;
      const auto run = [&](int block) {
        std::this_thread::sleep_for(delays[static_cast<std::size_t>(block)]);
        program(HostThread{block, static_cast<int>(delays.size())}, peers_);
      };
      {
        std::vector<std::jthread> others;
        for (int block = 1; block < static_cast<int>(delays.size()); ++block) others.emplace_back(run, block);
        run(0);
      }
      end_as_a_kernel();
    });
  }
  void synchronize() { fabric_->synchronize(stream_); }

 private:
  Fabric* fabric_;
  PacketInbox inbox_;
  Peers peers_;
  Draws own_{static_cast<std::uint32_t>(fabric_->rank()) + 31};
  ThreadPool pool_{1};
  Stream stream_{pool_};
};

template <class Body>
void run_small(int ranks, std::size_t packets, std::chrono::milliseconds deadline, const Body& body) {
  const std::size_t bytes = PacketInbox::heap_bytes(PacketInbox::buffer_bytes_for(ranks, packets));
  ShmThreads world(ranks, {.heap_bytes = bytes, .deadline = deadline});
  run_team(ranks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    {
      SmallRank rank(*fabric, packets);
      body(rank);
      member.barrier();
    }
  });
}

Shards cut_at_random(Draws& draws, std::int64_t total, int ranks) {
  std::vector<std::int64_t> cuts{0, total}, counts;
  for (int i = 1; i < ranks; ++i) cuts.push_back(draws.between(0, total));
  std::sort(cuts.begin(), cuts.end());
  for (std::size_t i = 1; i < cuts.size(); ++i) counts.push_back(cuts[i] - cuts[i - 1]);
  return Shards::of(counts);
}

struct Gathering {
  ShardTiles tiles;
  std::vector<std::byte> a, x, whole;
};

// Bytes among which words are that mean "not yet arrived" and "escaped".
std::vector<std::byte> bytes_with_empty_words(Draws& draws, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; i += 8) {
    const std::int64_t kind = draws.between(0, 3);
    for (std::size_t k = i; k < std::min(count, i + 8); ++k)
      bytes[k] = kind < 2 ? static_cast<std::byte>(draws.between(0, 255)) : std::byte{0xff};
    if (kind == 2) bytes[i] = std::byte{0xfe};
  }
  return bytes;
}

std::unique_ptr<Gathering> drawn_gathering(Draws& shared, const SmallRank& rank) {
  auto call = std::make_unique<Gathering>();
  const bool of_rows = shared.between(0, 1) == 0;
  const std::int64_t rows = shared.between(1, kFewRows), columns = shared.between(1, kFewColumns);
  call->tiles = {.shards = cut_at_random(shared, of_rows ? rows : columns, rank.size()),
                 .of_rows = of_rows,
                 .other = of_rows ? columns : rows,
                 .tile_rows = kFewRows,
                 .element_bytes = 2};
  const auto row_bytes = static_cast<std::size_t>(columns) * 2;
  call->a = bytes_with_empty_words(shared, static_cast<std::size_t>(rows) * row_bytes);
  call->whole.assign(call->a.size() + kGuard, std::byte{0x5a});
  return call;
}

// This rank's shard with `behind` bytes after each row.
OwnShard own_shard(Gathering& call, int rank, std::size_t behind) {
  const ShardTiles& tiles = call.tiles;
  const auto begin = static_cast<std::size_t>(tiles.shards.begin(rank));
  const std::size_t bytes = tiles.row_bytes(rank), stride = bytes + behind;
  const std::size_t row_bytes = static_cast<std::size_t>(tiles.of_rows ? tiles.other : tiles.shards.total()) * 2;
  const auto rows = static_cast<std::size_t>(tiles.shard_rows(rank));
  call.x.assign(rows * stride, std::byte{});
  for (std::size_t row = 0; row < rows && bytes > 0; ++row)
    std::memcpy(call.x.data() + row * stride,
                call.a.data() + (tiles.of_rows ? (begin + row) * row_bytes : row * row_bytes + begin * 2), bytes);
  return {call.x.empty() ? nullptr : call.x.data(), stride};
}

class SmallM : public testing::TestWithParam<int> {};

TEST_P(SmallM, APushBringsEveryByteOfShardsOfAnyLengthInManyCallsInARow) {
  constexpr std::size_t kMost = kFewRows * packets_of(2 * kFewColumns);
  run_small(GetParam(), kMost, std::chrono::seconds(60), [](SmallRank& rank) {
    Draws shared(5);
    std::vector<std::unique_ptr<Gathering>> flying;
    for (int number = 0; number < kSmallCalls; ++number) {
      auto call = drawn_gathering(shared, rank);
      const OwnShard shard = own_shard(*call, rank.rank(), rank.rank() % 2 == 0 ? 0 : 2);
      const ShardPackets packets{call->tiles};
      rank.enqueue(PushSmallM<4>{packets, packets.most(), shard, rank.memory(), call->whole.data()});
      flying.push_back(std::move(call));
      if (std::ssize(flying) < kInFlight && number + 1 < kSmallCalls) continue;
      rank.synchronize();
      for (auto& done : flying) {
        std::vector<std::byte> want = done->a;
        want.resize(done->whole.size(), std::byte{0x5a});
        EXPECT_EQ(done->whole, want) << "rank " << rank.rank() << " in a call before " << number;
      }
      flying.clear();
    }
  });
}

struct Reducing {
  SumPackets packets;
  std::vector<std::vector<float>> products;  // of each rank
  std::vector<float> y;
  std::vector<bfloat16> y16;  // of some scattered sums in y's place, from element `shift` on: not aligned
  std::int64_t y_stride = 0, shift = 0;

  // The sum in rank order, which every rank must have bit for bit.
  float sum(std::int64_t at) const {
    float sum = products[0][static_cast<std::size_t>(at)];
    for (std::size_t p = 1; p < products.size(); ++p) sum += products[p][static_cast<std::size_t>(at)];
    return sum;
  }
};

std::unique_ptr<Reducing> drawn_reducing(Draws& shared, const SmallRank& rank) {
  auto call = std::make_unique<Reducing>();
  const std::int64_t rows = shared.between(1, kFewRows), n = shared.between(1, kFewColumns);
  call->packets = {static_cast<SmallSum>(shared.between(0, 2)), cut_at_random(shared, rows, rank.size()), n};
  const auto seed = static_cast<std::uint32_t>(shared.between(0, 1 << 18));
  for (int p = 0; p < rank.size(); ++p)
    call->products.push_back(numbers(rows * n, seed + static_cast<std::uint32_t>(p), DType::float32));
  const bool is_part = call->packets.form == SmallSum::scattered;
  call->y_stride = n + shared.between(0, 2);
  const auto elements =
      static_cast<std::size_t>((is_part ? call->packets.rows.count(rank.rank()) : rows) * call->y_stride) + kGuard;
  const bool narrow = is_part && shared.between(0, 1) == 1;
  call->shift = shared.between(0, 3);
  call->y.assign(narrow ? 0 : elements, -7.0F);
  call->y16.assign(narrow ? elements + static_cast<std::size_t>(call->shift) : 0, to_bfloat16(-7.0F));
  return call;
}

template <SmallSum kForm>
void enqueue_sum(SmallRank& rank, Reducing& call) {
  rank.enqueue(ReduceSmallM<kForm>{call.packets, call.packets.most(), rank.memory(),
                                   call.products[static_cast<std::size_t>(rank.rank())].data(), call.y.data(),
                                   call.y_stride});
}

void enqueue_rounded_sum(SmallRank& rank, Reducing& call) {
  rank.enqueue(ReduceSmallM<SmallSum::scattered, bfloat16>{call.packets, call.packets.most(), rank.memory(),
                                                           call.products[static_cast<std::size_t>(rank.rank())].data(),
                                                           call.y16.data() + call.shift, call.y_stride});
}

void check_reduced(const Reducing& call, int rank) {
  const SumPackets& packets = call.packets;
  const auto shift = static_cast<std::size_t>(call.y16.empty() ? 0 : call.shift);
  std::vector<float> want(call.y.size() + call.y16.size(), -7.0F), got = call.y;
  for (const bfloat16 one : call.y16) got.push_back(to_float(one));
  const bool is_part = packets.form == SmallSum::scattered;
  const std::int64_t first = is_part ? packets.rows.begin(rank) : 0,
                     rows = is_part ? packets.rows.count(rank) : packets.rows.total();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < packets.n; ++column)
      want[shift + static_cast<std::size_t>(row * call.y_stride + column)] =
          call.sum((first + row) * packets.n + column);
  if (!call.y16.empty())
    for (float& one : want) one = to_float(to_bfloat16(one));
  EXPECT_EQ(got, want) << "rank " << rank << ", form " << static_cast<int>(packets.form);
}

TEST_P(SmallM, SumsHaveTheBitsOfRankOrderInEveryFormAndManyCallsInARow) {
  constexpr std::size_t kMost = 2 * kFewRows * packets_of(kFewColumns * sizeof(float));
  run_small(GetParam(), kMost, std::chrono::seconds(60), [](SmallRank& rank) {
    Draws shared(6);
    std::vector<std::unique_ptr<Reducing>> flying;
    for (int number = 0; number < kSmallCalls; ++number) {
      auto call = drawn_reducing(shared, rank);
      if (!call->y16.empty())
        enqueue_rounded_sum(rank, *call);
      else if (call->packets.form == SmallSum::scattered)
        enqueue_sum<SmallSum::scattered>(rank, *call);
      if (call->packets.form == SmallSum::one_shot) enqueue_sum<SmallSum::one_shot>(rank, *call);
      if (call->packets.form == SmallSum::two_phase) enqueue_sum<SmallSum::two_phase>(rank, *call);
      flying.push_back(std::move(call));
      if (std::ssize(flying) < kInFlight && number + 1 < kSmallCalls) continue;
      rank.synchronize();
      for (const auto& done : flying) check_reduced(*done, rank.rank());
      flying.clear();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SmallM, testing::Values(1, 2, 3, 4));

TEST(SmallMPackets, AreCountedByWholeRows) {
  const Shards shards = Shards::of(std::vector<std::int64_t>{0, 3, 1});
  for (const bool of_rows : {true, false}) {
    const ShardPackets packets{{shards, of_rows, 9, 64, 2}};
    EXPECT_EQ(packets.count(0), 0U);
    EXPECT_EQ(packets.count(1), of_rows ? 6U : 9U);
    EXPECT_EQ(packets.most(), packets.count(1));
  }
  const SumPackets scattered{SmallSum::scattered, shards, 5};
  EXPECT_EQ(scattered.count(0), 0U);
  EXPECT_EQ(scattered.count(1), 6U);
  EXPECT_EQ(scattered.of_inbox(), 18U);
  EXPECT_EQ((SumPackets{SmallSum::two_phase, shards, 5}.of_inbox()), 36U);
  EXPECT_EQ((SumPackets{SmallSum::one_shot, shards, 5}.count(0)), 8U);
}

TEST(SmallMPackets, OfAnAllReduceGoInTwoPhasesFromHalfAMebibyteOn) {
  EXPECT_EQ(SumPackets::of_all_reduce(Shards::even(16, 2), 8192).form, SmallSum::one_shot);
  EXPECT_EQ(SumPackets::of_all_reduce(Shards::even(17, 2), 8192).form, SmallSum::two_phase);
}

TEST(PacketInboxSize, IsThatOfTheLimitsUpToTheMostAndNeverOverflows) {
  EXPECT_EQ(PacketInbox::buffer_bytes_for(3, 10), 480U);
  EXPECT_EQ(PacketInbox::buffer_bytes_for(8, std::size_t{1} << 30), PacketInbox::kMostBufferBytes);
  EXPECT_THROW(PacketInbox::buffer_bytes_for(8, std::size_t{1} << 62), InputError);
  // Of a layer of a large model, less than its channel takes.
  const AllGatherLinearLimits limits{.largest_shard = 4096, .other = 8192, .dtype = DType::bfloat16};
  AllGatherLinearLimits wide = limits;
  wide.dtype = DType::float32;  // is not gathered by packets
  constexpr DeviceKind kGpu = DeviceKind::cuda, kCpu = DeviceKind::cpu;
  EXPECT_LT(AllGatherLinear::heap_bytes(2, limits, kGpu), AllGatherLinear::heap_bytes(2, wide, kGpu));
  EXPECT_LT(AllGatherLinear::heap_bytes(2, limits, kCpu), AllGatherLinear::heap_bytes(2, limits, kGpu));
  EXPECT_THROW(LinearAllReduce::heap_bytes(2, {.m = 1, .n = std::int64_t{1} << 62}, kGpu), InputError);
}

TEST(PacketGrid, HasAPacketALaneUntilItHasAllLanes) {
  EXPECT_EQ(PacketGrid::of(1).blocks, 1);
  EXPECT_EQ(PacketGrid::of(4096).blocks, 32);
  EXPECT_EQ(PacketGrid::of(4096).threads, 128);
  EXPECT_EQ(PacketGrid::of(65536).blocks, PacketMemory::kMostBlocks);
  EXPECT_EQ(PacketGrid::of(65536).threads, 256);
}

TEST(SmallMFailure, ARankThatDoesNotComeIsNamedWithinTheDeadline) {
  for (const bool gathers : {true, false}) {
    std::string message;
    run_small(2, 64, std::chrono::milliseconds(100), [&](SmallRank& rank) {
      if (rank.rank() != 0) return;
      const Shards shards = Shards::even(4, 2);
      std::vector<float> data(16), to(16);
      const ShardPackets packets{{shards, true, 4, 64, 2}};
      const SumPackets sums{SmallSum::two_phase, shards, 4};
      if (gathers)
        rank.enqueue(PushSmallM<4>{packets,
                                   packets.most(),
                                   {reinterpret_cast<std::byte*>(data.data()), 8},
                                   rank.memory(),
                                   reinterpret_cast<std::byte*>(to.data())});
      else
        rank.enqueue(ReduceSmallM<SmallSum::two_phase>{sums, sums.most(), rank.memory(), data.data(), to.data(), 4});
      try {
        rank.synchronize();
      } catch (const Timeout& timeout) {
        message = timeout.what();
      }
    });
    EXPECT_THAT(message, testing::AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("small M: s")));
  }
}

}  // namespace
}  // namespace heddle
