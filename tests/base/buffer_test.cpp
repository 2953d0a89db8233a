#include "base/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

TEST(Buffer, IsZeroedAndPageAligned) {
  const Buffer buffer(100'000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
  EXPECT_TRUE(
      std::all_of(buffer.data(), buffer.data() + buffer.size_bytes(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Buffer, MovesWithoutCopying) {
  Buffer first(64);
  first.data()[3] = std::byte{7};
  const std::byte* address = first.data();
  const Buffer second = std::move(first);
  EXPECT_EQ(second.data(), address);
  EXPECT_EQ(second.data()[3], std::byte{7});
}

TEST(Buffer, MayBeEmpty) {
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

TEST(Buffer, SaysHowMuchCouldNotBeHad) {
  try {
    const Buffer buffer(std::size_t{1} << 62);
    FAIL() << "2^62 bytes were given";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("4611686018427387904 bytes"), std::string::npos) << failure.what();
  }
}

TEST(Buffer, OnAGpuNeedsABuildThatHasOne) {
  if constexpr (!kHaveCuda) {
    EXPECT_THROW(Buffer(64, Device{DeviceKind::cuda, 0}), InvalidArgument);
  }
}

}  // namespace
}  // namespace heddle
