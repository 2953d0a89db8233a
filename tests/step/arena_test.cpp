#include "step/arena.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/error.h"

namespace heddle {
namespace {

TEST(Arena, GivesTheSameAddressesInEveryStep) {
  Arena arena(4096);
  const void* first = arena.take_bytes(100);
  const void* second = arena.take(3, 5, DType::bfloat16).data;
  arena.rewind(0);
  EXPECT_EQ(arena.take_bytes(100), first);
  EXPECT_EQ(arena.take(3, 5, DType::bfloat16).data, second);
}

TEST(Arena, AlignsAndKeepsTensorsApart) {
  Arena arena(4096);
  const auto a = reinterpret_cast<std::uintptr_t>(arena.take_bytes(1));
  const auto b = reinterpret_cast<std::uintptr_t>(arena.take_bytes(257));
  const auto c = reinterpret_cast<std::uintptr_t>(arena.take_bytes(1));
  EXPECT_EQ(a % Arena::kAlignment, 0u);
  EXPECT_EQ(b, a + Arena::kAlignment);
  EXPECT_EQ(c, b + 2 * Arena::kAlignment);
}

TEST(Arena, RewindsToAMark) {
  Arena arena(4096);
  arena.take_bytes(10);
  const std::size_t mark = arena.mark();
  const void* scratch = arena.take_bytes(10);
  arena.rewind(mark);
  EXPECT_EQ(arena.take_bytes(10), scratch);
  EXPECT_THROW(arena.rewind(arena.mark() + 1), InvalidArgument);
}

TEST(Arena, MeasuresWhatIsTakenWithoutMemory) {
  Arena arena = Arena::measuring();
  const auto first = reinterpret_cast<std::uintptr_t>(arena.take_bytes(1));
  const std::size_t mark = arena.mark();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.take(std::int64_t{1} << 30, 1 << 10, DType::float32).data),
            first + Arena::kAlignment);
  arena.rewind(mark);
  arena.take_bytes(300);
  EXPECT_EQ(first % Arena::kAlignment, 0u);
  EXPECT_EQ(arena.peak_bytes(), Arena::kAlignment + (std::size_t{1} << 42));
  EXPECT_EQ(arena.mark(), 3 * Arena::kAlignment);
}

TEST(Arena, SaysWhenItIsFull) {
  Arena arena(512);
  arena.take_bytes(300);
  try {
    arena.take_bytes(1);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("256 bytes are wanted, 0 of 512 are free"), std::string::npos)
        << failure.what();
  }
  EXPECT_EQ(arena.peak_bytes(), 512u);
}

}  // namespace
}  // namespace heddle
