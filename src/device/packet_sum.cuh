// Sums packets of floats in float32, in the order of the calls, and rounds once at the end.
#pragma once

#include <bit>

#include "base/dtype.h"
#include "device/packet.cuh"
#include "device/unrolled.cuh"
#include "device/widen.h"

namespace heddle {

// Floats, rounded to T, as a packet.
template <class T, int kCount>
HEDDLE_HOST_DEVICE Packet narrowed(const float (&values)[kCount]) {
  static_assert(kCount * sizeof(T) == kPacketBytes);
  Packet packet{};
  unrolled<4>([&](auto i) {
    std::uint32_t word;
    if constexpr (sizeof(T) == 4)
      word = std::bit_cast<std::uint32_t>(values[i]);
    else
      word = narrow_pair<T>(values[2 * i], values[2 * i + 1]);
    packet.words[i / 2] |= std::uint64_t{word} << (32 * (i % 2));
  });
  return packet;
}

// T: float, bfloat16 or float16. The sum of one packet is that packet, bit for bit, except NaNs.
template <class T>
class PacketSum {
 public:
  HEDDLE_HOST_DEVICE void start(const Packet& packet) { widen(packet, values_); }

  HEDDLE_HOST_DEVICE void add(const Packet& packet) {
    float more[kElements];
    widen(packet, more);
    unrolled<kElements>([&](auto i) { values_[i] += more[i]; });
  }

  HEDDLE_HOST_DEVICE Packet rounded() const { return narrowed<T>(values_); }

  // Element i of the sum, not rounded.
  template <int i>
  HEDDLE_HOST_DEVICE float value() const {
    return values_[i];
  }

 private:
  static constexpr int kElements = static_cast<int>(kPacketBytes / sizeof(T));

  HEDDLE_HOST_DEVICE static void widen(const Packet& packet, float (&values)[kElements]) {
    unrolled<4>([&](auto i) {
      const auto word = static_cast<std::uint32_t>(packet.words[i / 2] >> (32 * (i % 2)));
      if constexpr (sizeof(T) == 4)
        values[i] = std::bit_cast<float>(word);
      else
        widen_pair<T>(word, values[2 * i], values[2 * i + 1]);
    });
  }

  float values_[kElements] = {};
};

}  // namespace heddle
