#include "kernels/linear.h"

#include "cpu_arithmetic.h"
#include "operands.h"

namespace heddle {
namespace {

struct LinearCase {
  std::int64_t num_tokens, out_features, in_features;
  std::int64_t gap = 0;          // between rows of x and of y
  std::size_t misalignment = 0;  // of the weight, in elements
  float scale = 1;
};

const LinearCase kCases[] = {
    {1, 1, 1},
    {1, 5, 7},
    {2, 3, 15},
    {3, 4, 16},
    {4, 9, 17, 3},
    {1, 33, 72, 0, 1},
    {5, 31, 72, 5, 3},
    {7, 64, 288},
    {25, 40, 33, 1, 5},          // one token more than are taken at once
    {53, 35, 100},               // several rounds of tokens, the last ragged
    {2, 6, 4096},                // many steps a lane
    {3, 10, 300, 0, 0, 1e15f},   // sums near 1e30
    {3, 10, 300, 0, 0, 1e-20f},  // products are subnormal
    {1, 700, 512},               // several pieces
};

double bound(const float* x, const float* w, std::int64_t n) {
  double magnitude = 0;
  for (std::int64_t k = 0; k < n; ++k) magnitude += std::fabs(static_cast<double>(x[k]) * w[k]);
  // A lane's additions, four halvings, and one for the second-order terms; each subnormal rounding adds half of 2^-149.
  const double depth = static_cast<double>(n) / 16 + 6;
  return depth * kUnit * magnitude + static_cast<double>(n + 16) * 0x1p-150;
}

TEST(Linear, IsTheDotProductOfItsDefinition) {
  for (const DType dtype : kDTypes) {
    for (const LinearCase& c : kCases) {
      SCOPED_TRACE(fmt::format("{} {} tokens [{}, {}]", name_of(dtype), c.num_tokens, c.out_features, c.in_features));
      // float16 holds neither 1e15 nor 1e-20; there only x is scaled.
      const float w_scale = dtype == DType::float16 ? 1 : c.scale;
      const Rows x = Rows::random(c.num_tokens, c.in_features, 1, c.scale, c.gap);
      const Elements elements(random_floats(static_cast<std::size_t>(c.out_features * c.in_features), 2, w_scale),
                              dtype, c.misalignment);
      const std::vector<float> w = elements.floats();
      const Rows y(c.num_tokens, c.out_features, c.gap);
      on_cpu(2, [&](Stream& stream) {
        linear({.x = x, .weight = one_block(elements, dtype, c.out_features, c.in_features), .y = y}, stream);
      });
      for (std::int64_t t = 0; t < c.num_tokens; ++t) {
        for (std::int64_t r = 0; r < c.out_features; ++r) {
          const float* row = w.data() + r * c.in_features;
          double exact = 0;
          for (std::int64_t k = 0; k < c.in_features; ++k) exact += static_cast<double>(x.row(t)[k]) * row[k];
          ASSERT_NEAR(y.row(t)[r], exact, bound(x.row(t), row, c.in_features)) << "token " << t << " row " << r;
          if (cpu_target().fused_multiply_add) {
            const float expected = dot_product(x.row(t), row, c.in_features);
            ASSERT_EQ(std::bit_cast<std::uint32_t>(y.row(t)[r]), std::bit_cast<std::uint32_t>(expected))
                << "token " << t << " row " << r;
          }
        }
      }
      EXPECT_TRUE(y.gaps_untouched());
    }
  }
}

TEST(Linear, WidensEveryHalfPrecisionNumberExactly) {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    // Row r is the number with bits r, so that y is the number itself; 17 to reach lanes, and the tail, of each.
    constexpr int kIn = 17;
    Elements elements(65536 * kIn, dtype);
    auto* raw = static_cast<std::uint16_t*>(elements.data());
    for (int r = 0; r < 65536; ++r)
      for (int k = 0; k < kIn; ++k) raw[r * kIn + k] = k == r % kIn ? static_cast<std::uint16_t>(r) : 0;
    Rows x(1, kIn), y(1, 65536);
    std::fill_n(x.row(0), kIn, 1.0f);
    on_cpu(2,
           [&](Stream& stream) { linear({.x = x, .weight = one_block(elements, dtype, 65536, kIn), .y = y}, stream); });
    for (int r = 0; r < 65536; ++r) {
      const auto element = static_cast<std::uint16_t>(r);
      const float expected = dtype == DType::bfloat16 ? to_float(bfloat16{element}) : to_float(float16{element});
      ASSERT_TRUE(y.row(0)[r] == expected || (std::isnan(y.row(0)[r]) && std::isnan(expected))) << r;
    }
  }
}

TEST(Linear, StacksUpToThreeBlocks) {
  const int rows[] = {13, 1, 6}, in = 24, tokens = 3;
  const std::vector<float> values = random_floats(20 * 24, 3);
  for (const DType dtype : kDTypes) {
    const Elements whole(values, dtype);
    const Elements a(std::vector<float>(values.begin(), values.begin() + 13 * in), dtype, 1);
    const Elements b(std::vector<float>(values.begin() + 13 * in, values.begin() + 14 * in), dtype, 2);
    const Elements c(std::vector<float>(values.begin() + 14 * in, values.end()), dtype, 3);
    Weight stacked = one_block(a, dtype, rows[0], in);
    stacked.blocks[1] = {b.data(), rows[1]};
    stacked.blocks[2] = {c.data(), rows[2]};
    stacked.out_features = 20;
    const Rows x = Rows::random(tokens, in, 4), y(tokens, 20), expected(tokens, 20);
    on_cpu(1, [&](Stream& stream) {
      linear({.x = x, .weight = stacked, .y = y}, stream);
      linear({.x = x, .weight = one_block(whole, dtype, 20, in), .y = expected}, stream);
    });
    EXPECT_EQ(bits(y), bits(expected));
  }
}

TEST(Linear, BitsDependOnNeitherThreadsNorBatchNorAlignmentNorVectorWidth) {
  constexpr int kTokens = 29, kOut = 300, kIn = 201;
  const Rows x = Rows::random(kTokens, kIn, 5);
  const std::vector<float> values = random_floats(kOut * kIn, 6);
  for (const DType dtype : kDTypes) {
    const Elements elements(values, dtype), misaligned(values, dtype, 3);
    const Weight weight = one_block(elements, dtype, kOut, kIn);
    const Rows expected(kTokens, kOut);
    on_cpu(1, [&](Stream& stream) { linear({.x = x, .weight = weight, .y = expected}, stream); });
    for (const int threads : {2, 5}) {
      const Rows y(kTokens, kOut);
      on_cpu(threads, [&](Stream& stream) { linear({.x = x, .weight = weight, .y = y}, stream); });
      EXPECT_EQ(bits(y), bits(expected)) << threads << " threads";
    }
    for (const int batch : {1, 2, 3, 4, 5, 7, 8, 25}) {
      const Rows y(batch, kOut);
      on_cpu(1,
             [&](Stream& stream) { linear({.x = x.part(kTokens - batch, batch), .weight = weight, .y = y}, stream); });
      EXPECT_EQ(bits(y), bits(expected, kTokens - batch, batch)) << "batch of " << batch;
    }
    const Rows y(kTokens, kOut);
    on_cpu(1, [&](Stream& stream) {
      linear({.x = x, .weight = one_block(misaligned, dtype, kOut, kIn), .y = y}, stream);
    });
    EXPECT_EQ(bits(y), bits(expected)) << "misaligned";
    if (!cpu_target().fused_multiply_add) continue;
    for_each_fused_target([&] {
      const Rows other(kTokens, kOut);
      on_cpu(1, [&](Stream& stream) { linear({.x = x, .weight = weight, .y = other}, stream); });
      EXPECT_EQ(bits(other), bits(expected)) << cpu_target().name;
    });
  }
}

TEST(Linear, DoesNothingWithoutTokens) {
  const Elements elements(6, DType::float32);
  const Weight weight = one_block(elements, DType::float32, 2, 3);
  on_cpu(1, [&](Stream& stream) {
    linear({.x = {nullptr, 0, 3, 3}, .weight = weight, .y = {nullptr, 0, 2, 2}}, stream);
  });
}

TEST(Linear, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Elements elements(6, DType::float32);
  const Rows x = Rows::random(2, 3, 1), y(2, 2);
  const LinearParams good{.x = x, .weight = one_block(elements, DType::float32, 2, 3), .y = y};
  const auto broken = [&](auto change, const std::string& part) {
    LinearParams params = good;
    change(params);
    expect_invalid([&] { linear(params, stream); }, part);
  };
  linear(good, stream);
  broken([](LinearParams& p) { p.x.columns = 4; }, "linear: x is [2, 4], expected [2, 3]");
  broken([](LinearParams& p) { p.y.rows = 1; }, "linear: y is [1, 2], expected [2, 2]");
  broken([](LinearParams& p) { p.x.rows = p.y.rows = -1; }, "size below 1");
  broken([](LinearParams& p) { p.x.dtype = DType::float16; }, "linear: x is float16");
  broken([](LinearParams& p) { p.y.row_stride = 1; }, "linear: y has row_stride 1");
  broken([](LinearParams& p) { p.x.data = nullptr; }, "linear: x is null");
  broken([](LinearParams& p) { p.y.data = nullptr; }, "linear: y is null");
  broken([](LinearParams& p) { p.weight.in_features = 0; }, "the weight is [2, 0]");
  broken([](LinearParams& p) { p.weight.blocks[0].data = nullptr; }, "a block of the weight is null");
  broken([](LinearParams& p) { p.weight.blocks[0].num_rows = 1; }, "have 1 rows, out_features is 2");
  broken([](LinearParams& p) { p.weight.blocks[1].num_rows = -1; }, "a block of the weight has -1 rows");
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
