#include "device/even_parts.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace heddle {
namespace {

TEST(EvenParts, HoldEveryPlaceOnceAndDifferByOneAtMost) {
  for (const std::uint32_t count : {1u, 5u, 131u, 132u, 133u, 577u})
    for (const std::uint32_t parts : {1u, 2u, 7u, 132u, 200u}) {
      EXPECT_EQ(begin_of_part(count, 0u, parts), 0u);
      EXPECT_EQ(begin_of_part(count, parts, parts), count);
      for (std::uint32_t part = 0; part < parts; ++part) {
        const std::uint32_t size = begin_of_part(count, part + 1, parts) - begin_of_part(count, part, parts);
        EXPECT_TRUE(size == count / parts || size == count / parts + 1) << count << " in " << parts;
      }
      for (std::uint32_t place = 0; place < count; ++place) {
        const std::uint32_t part = part_of(count, place, parts);
        ASSERT_LE(begin_of_part(count, part, parts), place) << count << " in " << parts;
        ASSERT_GT(begin_of_part(count, part + 1, parts), place) << count << " in " << parts;
      }
    }
}

// Tiles of a decode step for 264 blocks: 16 million of them times the blocks pass 2^32.
TEST(EvenParts, HoldManyUnitsIn64Bits) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 31) - 1, kParts = 264;
  for (std::uint64_t part = 0; part < kParts; ++part) {
    const std::uint64_t begin = begin_of_part(kCount, part, kParts), end = begin_of_part(kCount, part + 1, kParts);
    EXPECT_EQ(begin, kCount / kParts * part + kCount % kParts * part / kParts);
    EXPECT_EQ(part_of(kCount, begin, kParts), part);
    EXPECT_EQ(part_of(kCount, end - 1, kParts), part);
  }
}

}  // namespace
}  // namespace heddle
