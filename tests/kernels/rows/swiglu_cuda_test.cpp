#include "kernels/cuda_operands.h"
#include "kernels/rows/swiglu.h"

namespace heddle {
namespace {

using SwigluOnGpu = OnGpu;

TEST_F(SwigluOnGpu, MatchesFloat64) {
  std::vector<float> gates = {0,      -0.0f,  1e-40f,  1e-20f, -1e-3f, 88.7f, -88.7f, 89.5f,
                              -89.5f, 103.9f, -103.9f, 1e4f,   -1e4f,  6e4f,  -6e4f};
  for (float x = -110; x < 110; x += 0.0371f) gates.push_back(x);
  while (gates.size() % 16 != 5) gates.push_back(1);
  for (const DType in : kDTypes) {
    for (const DType out : kDTypes) {
      for (const bool ragged : {false, true}) {
        SCOPED_TRACE(fmt::format("{} to {} ragged {}", name_of(in), name_of(out), ragged));
        const auto n = static_cast<std::int64_t>(gates.size()) - (ragged ? 0 : 5);
        Rows exact_gate_up(3, 2 * n);
        for (int row = 0; row < 3; ++row)
          for (std::int64_t i = 0; i < n; ++i) {
            exact_gate_up.row(row)[i] = gates[static_cast<std::size_t>(i)];
            exact_gate_up.row(row)[n + i] = i % 2 == 0 ? 1.0f : -0.3f * static_cast<float>(row + 1);
          }
        const Rows gate_up = rounded(exact_gate_up, in);
        const GpuRows x(gate_up, in), y(3, n, out, {.gap = ragged ? 3 : 16});
        on_gpu([&](Stream& stream) { swiglu({.gate_up = x, .y = y}, stream); });
        const Rows result = y.rows();
        EXPECT_TRUE(result.gaps_untouched());
        for (int row = 0; row < 3; ++row)
          for (std::int64_t i = 0; i < n; ++i) {
            const double gate = gate_up.row(row)[i], exact = gate / (1 + std::exp(-gate)) * gate_up.row(row)[n + i];
            if (out == DType::float16 && std::fabs(exact) > 65500) continue;  // rounds to infinity, or not
            // As on the CPU (swiglu_test.cpp), with an exp within 2 units, and the last rounding.
            const double last = out == DType::float32 ? 0 : unit_roundoff(out);
            const double smallest = out == DType::float16 ? 0x1p-25 : 0x1p-133;
            ASSERT_NEAR(result.row(row)[i], exact,
                        std::fabs(exact) * (7.5 * kUnit + last) + (gate < -87 ? 0x1p-119 : 0) + smallest)
                << "gate " << gate;
          }
      }
    }
  }
}

TEST_F(SwigluOnGpu, PassesInfinityAndNaNOn) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const GpuRows gate_up(Rows::of({kInfinity, kPoison, 1, 1, 1, kPoison}, 1, 6), DType::float32),
      y(1, 3, DType::float32);
  on_gpu([&](Stream& stream) { swiglu({.gate_up = gate_up, .y = y}, stream); });
  const Rows result = y.rows();
  EXPECT_EQ(result.row(0)[0], kInfinity);
  EXPECT_TRUE(std::isnan(result.row(0)[1]));
  EXPECT_TRUE(std::isnan(result.row(0)[2]));
}

TEST_F(SwigluOnGpu, BitsDependOnNeitherBatchNorAlignment) {
  constexpr int kTokens = 300, kColumns = 1376;
  const Rows values = Rows::random(kTokens, 2 * kColumns, 1, 4);
  const GpuRows packed(values, DType::float32), apart(values, DType::float32, {.gap = 1}),
      y(kTokens, kColumns, DType::float32), y_apart(kTokens, kColumns, DType::float32, {.gap = 3}),
      alone(1, kColumns, DType::float32);
  on_gpu([&](Stream& stream) {
    swiglu({.gate_up = packed, .y = y}, stream);
    swiglu({.gate_up = apart, .y = y_apart}, stream);
    Tensor one = packed;
    one.data = static_cast<float*>(one.data) + 200 * one.row_stride;
    one.rows = 1;
    swiglu({.gate_up = one, .y = alone}, stream);
  });
  EXPECT_EQ(bits(y_apart.rows()), bits(y.rows()));
  EXPECT_EQ(bits(alone.rows()), bits(y.rows(), 200, 1));
}

}  // namespace
}  // namespace heddle
