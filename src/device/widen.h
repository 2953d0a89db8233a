// Two 16-bit numbers in a 32-bit word, as two floats. The CUDA forms give the same bits as base/dtype.h, except for NaN
// payloads.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/host_device.h"

namespace heddle {

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

}  // namespace heddle
