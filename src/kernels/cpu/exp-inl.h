// exp of a register. Included once per target, after hwy/highway.h; the include guard is Highway's idiom.
#if defined(HEDDLE_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_EXP_INL_H_
#undef HEDDLE_KERNELS_EXP_INL_H_
#else
#define HEDDLE_KERNELS_EXP_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// e^x = 2^n e^r with x = n ln 2 + r and |r| <= ln 2 / 2, as in Cephes' expf, with fused multiply-adds.
template <class D>
struct ExpParts {
  hn::Vec<D> shifted;  // n + shifter, whose low bits are those of n + 1.5 * 2^23
  hn::Vec<D> power;    // e^r by a polynomial of degree 7

  // `shifter` is 1.5 * 2^23 plus an even number. Adding it leaves the nearest integer in the low bits of the sum.
  HWY_INLINE ExpParts(D d, hn::Vec<D> x, hn::Vec<D> shifter) {
    shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), shifter);
    const auto nf = hn::Sub(shifted, shifter);
    auto r = hn::MulAdd(nf, hn::Set(d, -0.693359375f), x);  // ln 2 in two parts; the first times n is exact
    r = hn::MulAdd(nf, hn::Set(d, 2.12194440e-4f), r);

    auto p = hn::Set(d, 1.9875691500e-4f);
    p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
    p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
    p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
    power = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  }
};

// e^x, within 1.5 ulp where the result is normal; 0 below -104, infinity above 89, NaN for NaN.
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // Comparisons with NaN are false, so NaN passes through. Highway's Min and Max would differ between targets.
  x = hn::IfThenElse(hn::Gt(x, hn::Set(d, 89.0f)), hn::Set(d, 89.0f), x);
  x = hn::IfThenElse(hn::Lt(x, hn::Set(d, -104.0f)), hn::Set(d, -104.0f), x);

  const auto shifter = hn::Set(d, 0x1.8p23f);
  const ExpParts<D> parts(d, x, shifter);
  const auto n = hn::Sub(hn::BitCast(di, parts.shifted), hn::BitCast(di, shifter));
  // 2^n in two factors: n reaches -150 and 128, beyond the range of one exponent.
  const auto bias = hn::Set(di, 127);
  const auto n_low = hn::ShiftRight<1>(n);
  const auto n_high = hn::Sub(n, n_low);
  const auto p = hn::Mul(parts.power, hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n_low, bias))));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n_high, bias))));
}

// exp of x <= 0 or NaN: the same bits, except a NaN's payload, with a third fewer operations. 2^(n + 64) is added to
// the power's exponent, where it has room.
template <class D>
HWY_INLINE hn::Vec<D> exp_of_nonpositive(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  x = hn::IfThenElse(hn::Lt(x, hn::Set(d, -104.0f)), hn::Set(d, -104.0f), x);
  const ExpParts<D> parts(d, x, hn::Set(d, 0x1.8p23f + 64));
  const auto p =
      hn::BitCast(d, hn::Add(hn::BitCast(di, parts.power), hn::ShiftLeft<23>(hn::BitCast(di, parts.shifted))));
  // NaN left an unknown exponent. x times 0 is -0 or NaN, and adding -0 changes nothing.
  return hn::MulAdd(p, hn::Set(d, 0x1p-64f), hn::Mul(x, hn::Zero(d)));
}

// a > b ? a : b, one instruction on x86. Highway's Max treats NaN differently between targets.
template <class D>
HWY_INLINE hn::Vec<D> larger(D d, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  (void)d;
  return hn::Max(a, b);
#else
  (void)d;
  return hn::IfThenElse(hn::Gt(a, b), a, b);
#endif
}

// 2^x of x <= 0 or NaN, within 1.5 ulp where the result is normal; 0 below -151, NaN for NaN. x = n + r with |r| <=
// 1/2, and 2^r is a minimax polynomial of degree 6: half the operations of exp.
template <class D>
HWY_INLINE hn::Vec<D> exp2_of_nonpositive(D d, hn::Vec<D> x) {
  x = larger(d, hn::Set(d, -152.0f), x);
  const auto shifter = hn::Set(d, 0x1.8p23f + 64);
  const auto shifted = hn::Add(x, shifter);
  const auto n = hn::Sub(shifted, shifter);
  const auto r = hn::Sub(x, n);
  auto p = hn::Set(d, 0x1.470b4ap-13f);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.5f7276p-10f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.3b270ep-7f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.c6ae72p-5f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.ebfbe2p-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.62e432p-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<D>{_mm512_scalef_ps(p.raw, n.raw)};
#else  // as in exp_of_nonpositive
  const hn::RebindToSigned<D> di;
  p = hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
  return hn::MulAdd(p, hn::Set(d, 0x1p-64f), hn::Mul(x, hn::Zero(d)));
#endif
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
