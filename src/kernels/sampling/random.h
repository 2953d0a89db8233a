// Counter-based random numbers: a pure function of a key and a counter, the same on every device and in any order.
#pragma once

#include <array>
#include <cstdint>

namespace heddle {

// Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in (0, 1), never 0 or 1, from 52 bits: number `index` of the sequence of (seed, position).
constexpr double uniform(std::uint64_t seed, std::uint32_t position, std::uint32_t index) {
  const auto bits =
      philox({index, position, 0, 0}, {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t high = (std::uint64_t{bits[0]} << 32 | bits[1]) >> 12;  // 52 bits, and a half below
  return (static_cast<double>(high) + 0.5) * 0x1p-52;
}

}  // namespace heddle
