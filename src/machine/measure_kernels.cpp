#include "machine/measure_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "machine/measure_kernels.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Eight independent sums, so that loads are the bottleneck, not additions.
std::uint64_t sum_words(const std::uint64_t* HWY_RESTRICT words, std::size_t count) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t n = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (std::size_t i = 0; i < count; i += 8 * n) {
    const std::uint64_t* p = words + i;
    s0 = hn::Add(s0, hn::Load(d, p));
    s1 = hn::Add(s1, hn::Load(d, p + n));
    s2 = hn::Add(s2, hn::Load(d, p + 2 * n));
    s3 = hn::Add(s3, hn::Load(d, p + 3 * n));
    s4 = hn::Add(s4, hn::Load(d, p + 4 * n));
    s5 = hn::Add(s5, hn::Load(d, p + 5 * n));
    s6 = hn::Add(s6, hn::Load(d, p + 6 * n));
    s7 = hn::Add(s7, hn::Load(d, p + 7 * n));
  }
  s0 = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  return hn::GetLane(hn::SumOfLanes(d, s0));
}

// Twelve chains: two FMA units with a latency of four or five need ten in flight, and with two constants they fit 16
// registers. x = x * a + b with a < 1 stays near b / (1 - a) = 1: no overflow, no subnormals.
FmaRun run_fma_chains(float seed, std::int64_t steps) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  // Twelve different chains: the compiler would compute equal ones once.
  const auto chain = [&](int i) { return hn::Set(d, seed + static_cast<float>(i)); };
  auto x0 = chain(0), x1 = chain(1), x2 = chain(2), x3 = chain(3), x4 = chain(4), x5 = chain(5);
  auto x6 = chain(6), x7 = chain(7), x8 = chain(8), x9 = chain(9), x10 = chain(10), x11 = chain(11);
  for (std::int64_t step = 0; step < steps; ++step) {
    x0 = hn::MulAdd(x0, a, b);
    x1 = hn::MulAdd(x1, a, b);
    x2 = hn::MulAdd(x2, a, b);
    x3 = hn::MulAdd(x3, a, b);
    x4 = hn::MulAdd(x4, a, b);
    x5 = hn::MulAdd(x5, a, b);
    x6 = hn::MulAdd(x6, a, b);
    x7 = hn::MulAdd(x7, a, b);
    x8 = hn::MulAdd(x8, a, b);
    x9 = hn::MulAdd(x9, a, b);
    x10 = hn::MulAdd(x10, a, b);
    x11 = hn::MulAdd(x11, a, b);
  }
  x0 = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)));
  x0 = hn::Add(x0, hn::Add(hn::Add(x8, x9), hn::Add(x10, x11)));
  return {hn::GetLane(hn::SumOfLanes(d, x0)),
          2.0 * 12.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps)};
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {

HWY_EXPORT(sum_words);
HWY_EXPORT(run_fma_chains);

std::uint64_t sum_words(const std::uint64_t* words, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(sum_words)(words, count);
}

FmaRun run_fma_chains(float seed, std::int64_t steps) {
  return HWY_DYNAMIC_DISPATCH(run_fma_chains)(seed, steps);
}

HighwayVersion kernel_library_version() {
  return {HWY_MAJOR, HWY_MINOR, HWY_PATCH};
}

}  // namespace heddle
#endif
