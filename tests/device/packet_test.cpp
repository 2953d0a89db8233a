#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstring>

#include "device/packet_sum.cuh"
#include "device/pieces.cuh"

namespace heddle {
namespace {

TEST(Packet, WhatIsSentHasArrivedAndIsTheSameUnlessItIsTheEmptyWord) {
  Packet place{{kEmpty, kEmpty}};
  EXPECT_FALSE(arrived(look(&place)));
  for (const std::uint64_t word : {std::uint64_t{0}, std::uint64_t{1} << 63, kEscape, kEmpty << 32, kEmpty >> 1}) {
    send(&place, {{word, word}});
    EXPECT_TRUE(arrived(look(&place)));
    EXPECT_EQ(look(&place).words[0], word);
    EXPECT_EQ(look(&place).words[1], word);
    clear(&place);
    EXPECT_FALSE(arrived(look(&place)));
  }
  send(&place, {{kEmpty, kEmpty}});
  EXPECT_TRUE(arrived(look(&place)));
}

TEST(Packet, EveryElementOfTheEmptyAndTheEscapeWordIsANaNForEveryDtype) {
  for (const std::uint64_t word : {kEmpty, kEscape}) {
    for (int shift = 0; shift < 64; shift += 32)
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(word >> shift))));
    for (int shift = 0; shift < 64; shift += 16) {
      EXPECT_TRUE(std::isnan(to_float(bfloat16{static_cast<std::uint16_t>(word >> shift)})));
      EXPECT_TRUE(std::isnan(to_float(float16{static_cast<std::uint16_t>(word >> shift)})));
    }
  }
}

TEST(Packet, TheEscapeCodeBringsBackEveryWord) {
  const std::uint64_t words[] = {0, 1, kEscape - 1, kEscape, kEmpty};
  for (const std::uint64_t low : words)
    for (const std::uint64_t high : words) {
      const Packet data{{low, high}};
      Packet place{{kEmpty, kEmpty}};
      send(&place, data);
      const Packet arrival = look(&place);
      EXPECT_EQ(has_escape(data), has_escape(arrival));
      EXPECT_NE(escape_code(data), 0);
      const Packet got = has_escape(arrival) ? unescaped(arrival, escape_code(data)) : arrival;
      EXPECT_EQ(got.words[0], low);
      EXPECT_EQ(got.words[1], high);
    }
}

TEST(Packet, OneWordAloneIsNotAnArrival) {
  EXPECT_FALSE(arrived({{0, kEmpty}}));
  EXPECT_FALSE(arrived({{kEmpty, 0}}));
}

TEST(Packet, LoadsAndStoresAnyPartOfABufferOfAnyAlignment) {
  std::array<std::byte, 64> source{}, destination{};
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i + 1);
  for (std::size_t shift = 0; shift < 16; ++shift)
    for (std::size_t bytes = 1; bytes <= 40; ++bytes) {
      destination.fill(std::byte{0});
      for (std::size_t i = 0; i < packets_of(bytes); ++i)
        store_packet(destination.data(), i, bytes, load_packet(source.data() + shift, i, bytes));
      EXPECT_EQ(std::memcmp(destination.data(), source.data() + shift, bytes), 0);
      EXPECT_EQ(destination[bytes], std::byte{0});
    }
}

template <class T>
float sum_of(float a, float b) {
  std::array<T, 16 / sizeof(T)> x{}, y{};
  if constexpr (std::is_same_v<T, float>) {
    x.fill(a), y.fill(b);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    x.fill(to_bfloat16(a)), y.fill(to_bfloat16(b));
  } else {
    x.fill(to_float16(a)), y.fill(to_float16(b));
  }
  PacketSum<T> sum;
  sum.start(std::bit_cast<Packet>(x));
  sum.add(std::bit_cast<Packet>(y));
  const auto result = std::bit_cast<std::array<T, 16 / sizeof(T)>>(sum.rounded());
  for (const T& value : result) EXPECT_EQ(to_float(value), to_float(result[0]));
  return to_float(result[0]);
}

TEST(PacketSum, RoundsOnceToNearestEven) {
  EXPECT_EQ(sum_of<float>(1.5f, 2.25f), 3.75f);
  EXPECT_EQ(sum_of<bfloat16>(256.0f, 1.0f), 256.0f);  // a tie, to even
  EXPECT_EQ(sum_of<bfloat16>(258.0f, 1.0f), 260.0f);
  EXPECT_EQ(sum_of<float16>(2048.0f, 1.0f), 2048.0f);
  EXPECT_EQ(sum_of<float16>(60000.0f, 60000.0f), std::numeric_limits<float>::infinity());
}

TEST(EvenPieces, CoverTheBytesInOrderWithAtLeastAPacketEachWhereThereAreEnough) {
  for (const int ranks : {1, 2, 3, 5, 8, 72})
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{17}, std::size_t{1000},
                                    std::size_t{16 * 72}, std::size_t{100001}}) {
      const EvenPieces pieces{bytes, ranks};
      EXPECT_EQ(pieces.begin(0), 0u);
      EXPECT_EQ(pieces.end(ranks - 1), bytes);
      for (int p = 0; p < ranks; ++p) {
        EXPECT_LE(pieces.packets(p), pieces.most_packets());
        EXPECT_LE(pieces.most_packets() - pieces.packets(p), 1u);
        EXPECT_TRUE(pieces.size(p) >= 1 || packets_of(bytes) < static_cast<std::size_t>(ranks));
      }
    }
}

}  // namespace
}  // namespace heddle
