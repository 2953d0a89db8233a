// What is handed out, given back and handed out again, of one heap and among ranks.
#include "fabric/symmetric_heap.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "base/error.h"
#include "base/team.h"
#include "fabric/shm/threads.h"
#include "fabric/symmetric_memory.h"

namespace heddle {
namespace {

std::uint32_t draw(std::uint32_t& state) {
  return (state = state * 1664525u + 1013904223u) >> 16;
}

TEST(SymmetricHeap, NeverHandsOutWhatIsInUseAndAlwaysWhatIsFree) {
  constexpr std::size_t kSize = 64 << 10;
  SymmetricHeap heap(kSize);
  std::map<std::size_t, std::size_t> live;
  std::vector<bool> used(kSize, false);  // ever
  const std::byte* const begin = nullptr;
  const auto place = [](std::size_t offset) { return reinterpret_cast<const void*>(offset); };
  std::uint32_t state = 5;
  for (int turn = 0; turn < 20'000; ++turn) {
    if (draw(state) % 2 == 0 && !live.empty()) {
      const auto one = std::next(live.begin(), static_cast<std::ptrdiff_t>(draw(state) % live.size()));
      EXPECT_EQ(heap.offset_of(begin, place(one->first), one->second), one->first);
      heap.release(one->first, one->second);
      EXPECT_EQ(heap.offset_of(begin, place(one->first), one->second), std::nullopt);
      EXPECT_THROW(heap.release(one->first, one->second), InvalidArgument);
      live.erase(one);
      continue;
    }
    const std::size_t bytes = 1 + draw(state) % (draw(state) % 8 == 0 ? 8192 : 600);
    std::size_t offset = 0;  // the first that is free, looked for in the plainest way
    for (const auto& [at, size] : live) {
      if (at >= offset + bytes) break;
      offset = (at + size + 255) / 256 * 256;
    }
    if (offset + bytes > kSize) {
      EXPECT_THROW(heap.allocate(bytes), Failure);
      continue;
    }
    const SymmetricHeap::Place got = heap.allocate(bytes);
    ASSERT_EQ(got.offset, offset);
    const auto first = used.begin() + static_cast<std::ptrdiff_t>(offset);
    const auto last = first + static_cast<std::ptrdiff_t>(bytes);
    EXPECT_TRUE(std::none_of(first + static_cast<std::ptrdiff_t>(got.used_before), last, [](bool one) { return one; }));
    std::fill(first, last, true);
    live[offset] = bytes;
  }
}

TEST(SymmetricHeap, SaysHowMuchIsLeftInOnePiece) {
  SymmetricHeap heap(2048);
  heap.allocate(1024);
  heap.allocate(512);
  heap.release(0, 1024);
  EXPECT_THAT([&] { heap.allocate(1025); },
              testing::ThrowsMessage<Failure>(testing::HasSubstr("has 1024 of its 2048 bytes left, and 1025")));
}

void run_ranks(int size, FunctionRef<void(Fabric&, TeamMember&)> body) {
  ShmThreads world(size, {.heap_bytes = 1 << 20});
  run_team(size, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    body(*fabric, member);
    member.barrier();
  });
}

TEST(SymmetricMemory, IsZeroWhenItIsHandedOutAgainWhateverPeersWroteThere) {
  run_ranks(3, [](Fabric& fabric, TeamMember&) {
    ThreadPool pool(1);
    Stream stream(pool);
    const std::byte* last = nullptr;
    for (int turn = 0; turn < 200; ++turn) {
      const SymmetricMemory memory(fabric, 3000);
      EXPECT_TRUE(last == nullptr || last == memory.data());
      last = memory.data();
      const std::span<const std::byte> bytes(memory.data(), memory.size_bytes());
      ASSERT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; }));
      fabric.barrier(stream);  // all have looked
      std::vector<std::byte> ones(1000, std::byte{0xff});
      for (int peer = 0; peer < 3; ++peer)
        fabric.put(stream, peer, memory.data() + 1000 * fabric.rank(), ones.data(), ones.size());
      fabric.synchronize(stream);
    }
  });
}

TEST(SymmetricMemory, ThatIsReleasedTwiceIsAWarning) {
  testing::internal::CaptureStderr();
  run_ranks(1, [](Fabric& fabric, TeamMember&) {
    const SymmetricMemory memory(fabric, 1000);
    fabric.release({memory.data(), memory.size_bytes()});
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("rank 0: symmetric memory is not given back: release: 1000 bytes"));
}

TEST(SymmetricMemory, ThatRanksReleaseDifferentlyIsNamedWhenTheyMeetNext) {
  run_ranks(2, [](Fabric& fabric, TeamMember&) {
    const SymmetricSpan span = fabric.allocate(1000);
    if (fabric.rank() == 1) fabric.release(span);
    EXPECT_THAT([&] { fabric.allocate(500); }, testing::ThrowsMessage<InvalidArgument>(
                                                   testing::HasSubstr("rank 1 would get the offset 0, rank 0 1024")));
  });
}

}  // namespace
}  // namespace heddle
