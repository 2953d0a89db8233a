// The sixteen virtual lanes of the CPU's dot product (README.md) in the registers of one target. Included once per
// target, after hwy/highway.h; the include guard is Highway's idiom.
#if defined(HEDDLE_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_LANES_INL_H_
#undef HEDDLE_KERNELS_LANES_INL_H_
#else
#define HEDDLE_KERNELS_LANES_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>
#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLanes = 16;

using Floats = hn::CappedTag<float, kLanes>;
using Vector = hn::Vec<Floats>;
constexpr int kWidth = static_cast<int>(hn::MaxLanes(Floats()));  // lanes per register
constexpr int kRegisters = kLanes / kWidth;                       // for the sixteen lanes

// Loops over arrays of registers are unrolled, so that the compiler keeps them in registers. The scalar target has too
// few registers to gain from it.
constexpr int kUnroll = kWidth == 1 ? 1 : kRegisters;

// kWidth consecutive elements, widened exactly to float32.
HWY_INLINE Vector load(const float* p) {
  return hn::LoadU(Floats(), p);
}
HWY_INLINE Vector load(const bfloat16* p) {
  const hn::Rebind<std::uint16_t, Floats> d16;
  const hn::Rebind<std::uint32_t, Floats> d32;
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, &p->bits))));
}
HWY_INLINE Vector load(const float16* p) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(Floats(), to_float(*p));
#else
  const hn::Rebind<std::uint16_t, Floats> d16;
  const hn::Rebind<hwy::float16_t, Floats> d_half;
  return hn::PromoteTo(Floats(), hn::BitCast(d_half, hn::LoadU(d16, &p->bits)));
#endif
}

// Stores kWidth elements. Rounds to bfloat16 to nearest, ties to even, with the bits of to_bfloat16.
HWY_INLINE void store(Vector v, float* p) {
  hn::StoreU(v, Floats(), p);
}
HWY_INLINE void store(Vector v, bfloat16* p) {
#if HWY_TARGET == HWY_SCALAR
  *p = to_bfloat16(hn::GetLane(v));
#else
  const hn::Rebind<std::uint32_t, Floats> d32;
  const hn::Rebind<std::int32_t, Floats> d_signed;
  const hn::Rebind<std::uint16_t, Floats> d16;
  const auto bits = hn::BitCast(d32, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff))));
  const auto quiet = hn::Or(upper, hn::Set(d32, 0x40));
  const auto is_nan = hn::RebindMask(d32, hn::Ne(v, v));
  const auto result = hn::IfThenElse(is_nan, quiet, rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(d_signed, result)), d16, &p->bits);
#endif
}

HWY_INLINE void store_one(float v, float* p) {
  *p = v;
}
HWY_INLINE void store_one(float v, bfloat16* p) {
  *p = to_bfloat16(v);
}

// Forces `v` into a register. GCC would fold a load into each instruction that uses it, but two loads per cycle are
// scarcer than registers: a tile is a third faster with this.
HWY_INLINE Vector in_register(Vector v) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// sum + a * b, in the sum's register. Where sums, operands and a temporary take all sixteen registers, GCC would put
// some sums into an operand's register and spill them.
HWY_INLINE Vector add_product(Vector sum, Vector a, Vector b) {
#if HWY_TARGET == HWY_AVX2
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum.raw) : "x"(a.raw), "x"(b.raw));
  return sum;
#else
  return hn::MulAdd(a, b, sum);
#endif
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE float halve(Floats, Vector v) {
  return hn::GetLane(v);
}
#else
// Halves the lanes, v[i] + v[i + half], until one is left.
template <class D>
HWY_INLINE float halve(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  } else {
    const hn::Half<D> half;
    return halve(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// The sum of the sixteen lanes in the order of README.md. Overwrites `lanes`.
HWY_INLINE float sum_lanes(Vector (&lanes)[kRegisters]) {
#pragma GCC unroll kUnroll
  for (int half = kRegisters / 2; half >= 1; half /= 2) {
#pragma GCC unroll kUnroll
    for (int i = 0; i < half; ++i) lanes[i] = hn::Add(lanes[i], lanes[i + half]);
  }
  return halve(Floats(), lanes[0]);
}

#if HWY_TARGET != HWY_SCALAR
// The sums of the four lanes of each of a, b, c and e, in the order of README.md.
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> sum_each_of_four(hn::Vec<hn::CappedTag<float, 4>> a,
                                                             hn::Vec<hn::CappedTag<float, 4>> b,
                                                             hn::Vec<hn::CappedTag<float, 4>> c,
                                                             hn::Vec<hn::CappedTag<float, 4>> e) {
  const hn::CappedTag<float, 4> d;
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  return hn::Add(hn::ConcatLowerLower(d, ce, ab), hn::ConcatUpperUpper(d, ce, ab));
}
#endif

// The sums of four times sixteen lanes in memory, each in the order of README.md.
HWY_INLINE void sum_lanes_of_four(const float* const (&lanes)[4], float (&sums)[4]) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) {
    Vector registers[kRegisters];
    for (int p = 0; p < kRegisters; ++p) registers[p] = load(lanes[i] + p * kWidth);
    sums[i] = sum_lanes(registers);
  }
#else
  using Four = hn::CappedTag<float, 4>;
  const Four d;
  hn::Vec<Four> v[4];
  for (int i = 0; i < 4; ++i) {
    const float* l = lanes[i];
    v[i] = hn::Add(hn::Add(hn::LoadU(d, l), hn::LoadU(d, l + 8)), hn::Add(hn::LoadU(d, l + 4), hn::LoadU(d, l + 12)));
  }
  hn::StoreU(sum_each_of_four(v[0], v[1], v[2], v[3]), d, sums);
#endif
}

#if HWY_TARGET == HWY_AVX3
// In each 2 * half lanes, the lower ones become the sums of `lower` with the lanes `half` further on, the upper ones
// those of `upper`: one blend, one permutation and one addition for two registers.
HWY_INLINE Vector halve_by_eight(Vector lower, Vector upper) {
  const Floats d;
  return hn::Add(hn::ConcatUpperLower(d, upper, lower), hn::ConcatLowerUpper(d, upper, lower));
}
HWY_INLINE Vector halve_by_four(Vector lower, Vector upper) {
  return hn::Add(hn::OddEvenBlocks(upper, lower), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(lower, upper)));
}
HWY_INLINE Vector halve_by_two(Vector lower, Vector upper) {
  const hn::Repartition<double, Floats> d64;
  const auto l = hn::BitCast(d64, lower), u = hn::BitCast(d64, upper);
  const auto kept = hn::BitCast(Floats(), hn::OddEven(u, l)), moved = hn::BitCast(Floats(), hn::OddEven(l, u));
  return hn::Add(kept, hn::Shuffle1032(moved));
}
HWY_INLINE Vector halve_by_one(Vector lower, Vector upper) {
  return hn::Add(hn::OddEven(upper, lower), hn::Shuffle2301(hn::OddEven(lower, upper)));
}

// The sums of sixteen times sixteen lanes, each in the order of README.md: lane i has that of v[i]. Overwrites v.
HWY_INLINE Vector sum_each_of_sixteen(Vector (&v)[16]) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) v[i] = halve_by_eight(v[i], v[i + 8]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) v[i] = halve_by_four(v[i], v[i + 4]);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) v[i] = halve_by_two(v[i], v[i + 2]);
  return halve_by_one(v[0], v[1]);
}
#endif

#if HWY_TARGET != HWY_SCALAR
// Halves the lanes, v[i] + v[i + half], until four are left.
template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> halve_to_four(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return halve_to_four(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// The first four of the sixteen lanes after the others are added to them in the order of README.md.
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> four_lanes_of(const Vector (&lanes)[kRegisters]) {
  Vector sums[kRegisters];
  for (int i = 0; i < kRegisters; ++i) sums[i] = lanes[i];
#pragma GCC unroll kUnroll
  for (int half = kRegisters / 2; half >= 1; half /= 2) {
#pragma GCC unroll kUnroll
    for (int i = 0; i < half; ++i) sums[i] = hn::Add(sums[i], sums[i + half]);
  }
  return halve_to_four(Floats(), sums[0]);
}
#endif

// Stores four sums of sixteen lanes, times `scale`. sums[i] == sum_lanes(*lanes[i]) * scale, bit for bit.
HWY_INLINE void store_sums_of_four(const Vector (*const (&lanes)[4])[kRegisters], float scale, float* sums) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) {
    Vector registers[kRegisters];
    for (int p = 0; p < kRegisters; ++p) registers[p] = (*lanes[i])[p];
    sums[i] = sum_lanes(registers) * scale;
  }
#else
  const hn::CappedTag<float, 4> d;
  const auto sum = sum_each_of_four(four_lanes_of(*lanes[0]), four_lanes_of(*lanes[1]), four_lanes_of(*lanes[2]),
                                    four_lanes_of(*lanes[3]));
  hn::StoreU(hn::Mul(sum, hn::Set(d, scale)), d, sums);
#endif
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
