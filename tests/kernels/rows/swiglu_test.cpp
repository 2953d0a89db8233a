#include "kernels/rows/swiglu.h"

#include "kernels/cpu_arithmetic.h"
#include "kernels/operands.h"

namespace heddle {
namespace {

// Gates 0, +-tiny ... +-1e30, infinities, NaN and a fine grid where exp matters.
std::vector<float> gates() {
  std::vector<float> result = {0,      -0.0f,  1e-45f,  -1e-40f, 1e-20f, -1e-3f, 88.7f, -88.7f, 89.5f,
                               -89.5f, 103.9f, -103.9f, -104.1f, 1e4f,   -1e4f,  1e30f, -1e30f};
  for (float x = -110; x < 110; x += 0.0371f) result.push_back(x);
  return result;
}

TEST(Swiglu, MatchesFloat64) {
  const std::vector<float> gate = gates();
  const auto n = static_cast<std::int64_t>(gate.size());
  Rows gate_up(1, 2 * n), y(1, n);
  std::copy(gate.begin(), gate.end(), gate_up.row(0));
  for (std::int64_t i = 0; i < n; ++i) gate_up.row(0)[n + i] = i % 2 == 0 ? 1.0f : -3.0f;
  on_cpu(1, [&](Stream& stream) { swiglu({.gate_up = gate_up, .y = y}, stream); });
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = gate[static_cast<std::size_t>(i)], up = gate_up.row(0)[n + i];
    const double exact = x / (1 + std::exp(-x)) * up;
    // exp within 1.5 units of the last place, which is 3 roundings; then addition, division and product. Where exp(-x)
    // overflows, below -88.7, the result is -0 instead of a number less than 3 * 89 * exp(-88.7) < 2^-119.
    EXPECT_NEAR(y.row(0)[i], exact, std::fabs(exact) * 6.5 * kUnit + (x < -88.7 ? 0x1p-119 : 0x1p-149)) << "gate " << x;
    if (cpu_target().fused_multiply_add) {
      const auto gate_i = static_cast<float>(x);
      const float model = gate_i / (1.0f + exponential(-gate_i)) * static_cast<float>(up);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(y.row(0)[i]), std::bit_cast<std::uint32_t>(model)) << "gate " << x;
    }
  }
}

TEST(Swiglu, PassesInfinityAndNaNOn) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Rows gate_up = Rows::of({kInfinity, kPoison, 1, 1, 1, kPoison}, 1, 6), y(1, 3);
  on_cpu(1, [&](Stream& stream) { swiglu({.gate_up = gate_up, .y = y}, stream); });
  EXPECT_EQ(y.row(0)[0], kInfinity);
  EXPECT_TRUE(std::isnan(y.row(0)[1]));
  EXPECT_TRUE(std::isnan(y.row(0)[2]));
}

TEST(Swiglu, BitsDependOnNeitherThreadsNorPlaceNorVectorWidth) {
  constexpr int kTokens = 9;
  for (const int n : {1, 7, 15, 16, 17, 72, 4096}) {
    const Rows gate_up = Rows::random(kTokens, 2 * n, 1, 4, 5), expected(kTokens, n, 2);
    on_cpu(1, [&](Stream& stream) { swiglu({.gate_up = gate_up, .y = expected}, stream); });
    EXPECT_TRUE(expected.gaps_untouched());
    const Rows threaded(kTokens, n), alone(1, n);
    on_cpu(5, [&](Stream& stream) {
      swiglu({.gate_up = gate_up, .y = threaded}, stream);
      swiglu({.gate_up = gate_up.part(4, 1), .y = alone}, stream);
    });
    EXPECT_EQ(bits(threaded), bits(expected)) << n;
    EXPECT_EQ(bits(alone), bits(expected, 4, 1)) << n;
    if (!cpu_target().fused_multiply_add) continue;
    for_each_fused_target([&] {
      const Rows y(kTokens, n);
      on_cpu(1, [&](Stream& stream) { swiglu({.gate_up = gate_up, .y = y}, stream); });
      EXPECT_EQ(bits(y), bits(expected)) << cpu_target().name;
    });
  }
}

TEST(Swiglu, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Rows gate_up = Rows::random(2, 6, 1), y(2, 3);
  expect_invalid([&] { swiglu({.gate_up = gate_up, .y = Rows(2, 4)}, stream); },
                 "swiglu: gate_up is [2, 6], expected [2, 8]");
  expect_invalid([&] { swiglu({.gate_up = gate_up, .y = {nullptr, 2, 3, 3}}, stream); }, "swiglu: y is null");
  expect_invalid([&] { swiglu({.gate_up = {nullptr, 2, 6, 6}, .y = y}, stream); }, "swiglu: gate_up is null");
  swiglu({.gate_up = {nullptr, 0, 6, 6}, .y = {nullptr, 0, 3, 3}}, stream);
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
