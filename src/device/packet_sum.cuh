// Sums packets of floats in float32, in the order of the calls, and rounds once at the end.
#pragma once

#include <bit>

#include "base/dtype.h"
#include "device/packet.cuh"
#include "device/unrolled.cuh"

namespace heddle {
namespace detail {

// Two 16-bit elements in a 32-bit word. The CUDA forms give the same bits as base/dtype.h, except for NaN payloads.
template <class T>
HEDDLE_HOST_DEVICE void widen_pair(std::uint32_t word, float& low, float& high) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    low = std::bit_cast<float>(word << 16);
    high = std::bit_cast<float>(word & 0xffff0000u);
  } else {
#ifdef __CUDA_ARCH__
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(low), "=f"(high)
        : "r"(word));
#else
    low = to_float(float16{static_cast<std::uint16_t>(word)});
    high = to_float(float16{static_cast<std::uint16_t>(word >> 16)});
#endif
  }
}

template <class T>
HEDDLE_HOST_DEVICE std::uint32_t narrow_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  std::uint32_t word;
  if constexpr (std::is_same_v<T, bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  if constexpr (std::is_same_v<T, bfloat16>)
    return to_bfloat16(low).bits | std::uint32_t{to_bfloat16(high).bits} << 16;
  else
    return to_float16(low).bits | std::uint32_t{to_float16(high).bits} << 16;
#endif
}

}  // namespace detail

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

  HEDDLE_HOST_DEVICE Packet rounded() const {
    Packet packet{};
    unrolled<4>([&](auto i) {
      std::uint32_t word;
      if constexpr (sizeof(T) == 4)
        word = std::bit_cast<std::uint32_t>(values_[i]);
      else
        word = detail::narrow_pair<T>(values_[2 * i], values_[2 * i + 1]);
      packet.words[i / 2] |= std::uint64_t{word} << (32 * (i % 2));
    });
    return packet;
  }

 private:
  static constexpr int kElements = static_cast<int>(kPacketBytes / sizeof(T));

  HEDDLE_HOST_DEVICE static void widen(const Packet& packet, float (&values)[kElements]) {
    unrolled<4>([&](auto i) {
      const auto word = static_cast<std::uint32_t>(packet.words[i / 2] >> (32 * (i % 2)));
      if constexpr (sizeof(T) == 4)
        values[i] = std::bit_cast<float>(word);
      else
        detail::widen_pair<T>(word, values[2 * i], values[2 * i + 1]);
    });
  }

  float values_[kElements] = {};
};

}  // namespace heddle
