#include "kernels/rows/rmsnorm.h"

#include "kernels/cpu_arithmetic.h"
#include "kernels/operands.h"

namespace heddle {
namespace {

enum class Residual { none, added };

struct RmsNormCase {
  std::int64_t num_tokens, hidden;
  Residual residual = Residual::none;
  float scale = 1;
  float eps = 1e-5f;
  std::int64_t gap = 0;
};

const RmsNormCase kRmsNormCases[] = {
    {1, 1},
    {2, 7, Residual::added},
    {3, 15, Residual::none, 1, 1e-6f, 3},
    {1, 16},
    {5, 17, Residual::added, 1, 1e-5f, 7},
    {2, 72, Residual::none, 1e5f},       // squares overflow float16
    {2, 72, Residual::added, 1e17f},     // squares close to float32's largest
    {2, 72, Residual::none, 1e-25f},     // squares vanish beside eps
    {2, 72, Residual::none, 1e-18f, 0},  // no eps, squares near the smallest normal number
    {7, 4096, Residual::added},
};

TEST(RmsNorm, MatchesFloat64AndItsDefinition) {
  for (const RmsNormCase& c : kRmsNormCases) {
    SCOPED_TRACE(fmt::format("[{}, {}] scale {}", c.num_tokens, c.hidden, c.scale));
    const Rows x = Rows::random(c.num_tokens, c.hidden, 1, c.scale, c.gap);
    const Rows before = Rows::random(c.num_tokens, c.hidden, 2, c.scale, c.gap);
    const std::vector<float> weight = random_floats(static_cast<std::size_t>(c.hidden), 3);
    const Rows residual = before, y(c.num_tokens, c.hidden, c.gap);
    const bool add = c.residual == Residual::added;
    on_cpu(2, [&](Stream& stream) {
      rmsnorm({.x = x, .weight = weight.data(), .residual = add ? Tensor(residual) : Tensor{}, .y = y, .eps = c.eps},
              stream);
    });
    for (std::int64_t t = 0; t < c.num_tokens; ++t) {
      std::vector<float> z(x.row(t), x.row(t) + c.hidden);
      if (add)
        for (std::int64_t i = 0; i < c.hidden; ++i) z[static_cast<std::size_t>(i)] += before.row(t)[i];
      double squares = 0;
      for (const float value : z) squares += static_cast<double>(value) * value;
      const double factor = 1 / std::sqrt(squares / static_cast<double>(c.hidden) + c.eps);
      const float mean = dot_product(z.data(), z.data(), c.hidden) / static_cast<float>(c.hidden);
      const float model_factor = 1.0f / std::sqrt(mean + c.eps);
      // Half of the dot product's relative error (all terms positive), then mean, eps, root, inverse and two products.
      const double bound = ((static_cast<double>(c.hidden) / 16 + 6) / 2 + 5) * kUnit;
      for (std::int64_t i = 0; i < c.hidden; ++i) {
        const float zi = z[static_cast<std::size_t>(i)], wi = weight[static_cast<std::size_t>(i)];
        if (add) {
          ASSERT_EQ(residual.row(t)[i], zi);
        }
        const double exact = zi * factor * wi;
        ASSERT_NEAR(y.row(t)[i], exact, std::fabs(exact) * bound + 0x1p-149);
        if (cpu_target().fused_multiply_add) {
          ASSERT_EQ(y.row(t)[i], zi * model_factor * wi);
        }
      }
    }
    EXPECT_TRUE(y.gaps_untouched() && residual.gaps_untouched());
    if (!add) {
      EXPECT_EQ(bits(residual), bits(before));
    }
  }
}

TEST(RmsNorm, OfZerosIsZero) {
  const std::vector<float> zeros(24), weight(24, 1.0f);
  const Rows x = Rows::of(zeros, 1, 24), y(1, 24);
  on_cpu(1, [&](Stream& stream) { rmsnorm({.x = x, .weight = weight.data(), .y = y, .eps = 1e-6f}, stream); });
  EXPECT_EQ(bits(y), bits(x));
}

TEST(RmsNorm, WorksInPlace) {
  const std::vector<float> weight = random_floats(40, 3);
  const Rows x = Rows::random(3, 40, 1), y(3, 40), residual = Rows::random(3, 40, 2), same_x = x,
             same_residual = residual;
  on_cpu(1, [&](Stream& stream) {
    rmsnorm({.x = x, .weight = weight.data(), .residual = residual, .y = y, .eps = 1e-5f}, stream);
    rmsnorm({.x = same_x, .weight = weight.data(), .residual = same_residual, .y = same_x, .eps = 1e-5f}, stream);
  });
  EXPECT_EQ(bits(same_x), bits(y));
}

// As the norm of queries and keys is computed: in place, on columns in the middle of wider rows.
TEST(RmsNorm, OfHeadsIsThatOfEachHeadByItself) {
  constexpr int kTokens = 5, kHeads = 3, kHeadDim = 24, kBefore = 10, kAfter = 7;
  constexpr int kColumns = kHeads * kHeadDim;
  const std::vector<float> weight = random_floats(kHeadDim, 3);
  for (const bool add : {false, true}) {
    const Rows x = Rows::random(kTokens, kBefore + kColumns + kAfter, 1), together = x, apart = x;
    const Rows residual = Rows::random(kTokens, kColumns, 2), residual_apart = residual;
    on_cpu(2, [&](Stream& stream) {
      const Tensor heads = Tensor(together).column_slice(kBefore, kColumns);
      rmsnorm({.x = heads,
               .weight = weight.data(),
               .residual = add ? Tensor(residual) : Tensor{},
               .y = heads,
               .eps = 1e-5f,
               .num_heads = kHeads},
              stream);
      for (int head = 0; head < kHeads; ++head) {
        const Tensor one = Tensor(apart).column_slice(kBefore + head * kHeadDim, kHeadDim);
        const Tensor its_residual = Tensor(residual_apart).column_slice(head * kHeadDim, kHeadDim);
        rmsnorm({.x = one, .weight = weight.data(), .residual = add ? its_residual : Tensor{}, .y = one, .eps = 1e-5f},
                stream);
      }
    });
    EXPECT_EQ(bits(together), bits(apart));
    EXPECT_EQ(bits(residual), bits(residual_apart));
    EXPECT_NE(bits(together), bits(x));
  }
}

TEST(RmsNorm, BitsDependOnNeitherThreadsNorBatchNorVectorWidth) {
  constexpr int kTokens = 70, kHidden = 1003;  // several pieces
  const Rows x = Rows::random(kTokens, kHidden, 1), expected(kTokens, kHidden);
  const std::vector<float> weight = random_floats(kHidden, 2);
  const auto run = [&](int threads, Tensor in, Tensor out) {
    on_cpu(threads,
           [&](Stream& stream) { rmsnorm({.x = in, .weight = weight.data(), .y = out, .eps = 1e-5f}, stream); });
  };
  run(1, x, expected);
  for (const int threads : {2, 5}) {
    const Rows y(kTokens, kHidden);
    run(threads, x, y);
    EXPECT_EQ(bits(y), bits(expected)) << threads << " threads";
  }
  const Rows alone(1, kHidden);
  run(1, x.part(61, 1), alone);
  EXPECT_EQ(bits(alone), bits(expected, 61, 1));
  if (!cpu_target().fused_multiply_add) return;
  for_each_fused_target([&] {
    const Rows y(kTokens, kHidden);
    run(1, x, y);
    EXPECT_EQ(bits(y), bits(expected)) << cpu_target().name;
  });
}

TEST(RmsNorm, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Rows x = Rows::random(2, 3, 1), y(2, 3), residual(2, 3);
  const std::vector<float> weight(3, 1.0f);
  const RmsNormParams good{.x = x, .weight = weight.data(), .residual = residual, .y = y, .eps = 1e-5f};
  const auto broken = [&](auto change, const std::string& part) {
    RmsNormParams params = good;
    change(params);
    expect_invalid([&] { rmsnorm(params, stream); }, part);
  };
  rmsnorm(good, stream);
  broken([](RmsNormParams& p) { p.x.data = nullptr; }, "rmsnorm: x is null");
  broken([](RmsNormParams& p) { p.weight = nullptr; }, "rmsnorm: weight is null");
  broken([](RmsNormParams& p) { p.y.columns = 4; }, "rmsnorm: y is [2, 4], expected [2, 3]");
  broken([](RmsNormParams& p) { p.residual.rows = 1; }, "rmsnorm: residual is [1, 3], expected [2, 3]");
  broken(
      [](RmsNormParams& p) {
        p.x.columns = 0;
        p.y.columns = 0;
        p.residual.columns = 0;
      },
      "rmsnorm: x is [2, 0]");
  broken([](RmsNormParams& p) { p.num_heads = 2; }, "rmsnorm: x has 3 columns, not a multiple of num_heads 2");
  broken([](RmsNormParams& p) { p.num_heads = 0; }, "not a multiple of num_heads 0");
  broken([](RmsNormParams& p) { p.eps = -1; }, "rmsnorm: eps is -1");
  broken([](RmsNormParams& p) { p.eps = kPoison; }, "rmsnorm: eps is nan");
  broken([](RmsNormParams& p) { p.x.dtype = DType::bfloat16; }, "rmsnorm: x is bfloat16");
  rmsnorm({.x = {nullptr, 0, 3, 3}, .y = {nullptr, 0, 3, 3}}, stream);
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
