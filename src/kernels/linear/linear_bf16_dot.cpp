#include "kernels/linear/linear_bf16_dot.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/linear/linear_bf16_dot.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#pragma push_macro("HWY_TARGET_STR")
#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>
// From here on, functions of this target are compiled with one instruction more than Highway's target has.
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Same as in lanes-inl.h; declared before the loops that call it.
HWY_INLINE __m512i in_register(__m512i v) {
  asm("" : "+v"(v));
  return v;
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#include "kernels/linear/linear-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Like Pairs (tiles-inl.h), with both products of a lane in one instruction: fma of the odd elements, then of the even.
struct PairDot {
  using Weight = bfloat16;
  using X = bfloat16;
  using Packed = bfloat16;
  static constexpr int kChunk = 2 * kLanes;
  static constexpr int kPhases = 1;
  static constexpr bool kRowByRow =
      true;  // AMD's hardware prefetcher follows one stream better than it uses software prefetches

  static HWY_INLINE void pack(const bfloat16* from, std::int64_t num_chunks, bfloat16* to) {
    std::memcpy(to, from, static_cast<std::size_t>(num_chunks * kChunk) * sizeof(bfloat16));
  }
  static HWY_INLINE __m512i operand(const bfloat16* chunk, int, int) { return _mm512_loadu_si512(chunk); }
  static HWY_INLINE Vector multiply_add(__m512i w, __m512i x, Vector sum) {
    return Vector{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x))};
  }
};

void linear_rows_of_pair_dots(const LinearParams& params, std::int64_t begin, std::int64_t end) {
  multiply_rows<PairDot>(params, begin, end);
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#pragma pop_macro("HWY_TARGET_STR")

#if HWY_ONCE
namespace heddle {

LinearRows linear_rows_bf16_dot() {
#if HWY_TARGETS & HWY_AVX3
  static const bool has = (hwy::SupportedTargets() & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512bf16") != 0;
  if (has) return N_AVX3::linear_rows_of_pair_dots;
#endif
  return nullptr;
}

bool bf16_dot_pays() {
#if HWY_TARGETS & HWY_AVX3
  static const bool pays = __builtin_cpu_is("amd") != 0;
  return pays && linear_rows_bf16_dot() != nullptr;
#else
  return false;
#endif
}

}  // namespace heddle
#endif
