#include "kernels/linear/linear.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/sanitizer.h"
#include "kernels/cpu_arithmetic.h"
#include "kernels/linear/linear_cpu.h"
#include "kernels/operands.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

struct LinearCase {
  std::int64_t num_tokens, out_features, in_features;
  std::int64_t gap = 0;          // between rows of x and of y
  std::size_t misalignment = 0;  // of the weight, in elements
  float scale = 1;
  bool has_bias = false;
};

const LinearCase kLinearCases[] = {
    {1, 1, 1},
    {1, 5, 7},
    {2, 3, 15},
    {3, 4, 16},
    {4, 9, 17, 3},
    {1, 33, 72, 0, 1},
    {5, 31, 72, 5, 3},
    {7, 64, 288},
    {25, 40, 33, 1, 5},
    {53, 35, 100},
    {2, 6, 4096},                // many steps a lane
    {3, 10, 300, 0, 0, 1e15f},   // sums near 1e30
    {3, 10, 300, 0, 0, 1e-20f},  // products are subnormal
    {1, 700, 512},               // several pieces
    {3, 40, 96, 1, 1, 1, true},
    {33, 30, 1100, 0, 0, 1, true},  // rounds of in_features with AVX2
    {6, 200, 2085, 0, 1},           // rounds of rows; a ragged end of the last strip
    {8, 50, 2300, 1, 1, 1, true},   // a group of rows and more
    {11, 25, 4096},                 // two tiles of tokens share strips
    {15, 49, 1500, 3},
    {101, 50, 300, 1, 1, 1, true},  // a few tokens after as many as are taken at once with AVX-512
    {67, 50, 300},                  // and with AVX2
    {2, 50, 1064, 0, 1},            // rows one after the other, where that pays; the longest, and more
    {2, 10, 3413},
    {2, 10, 3414},
    {1, 50, 5120},
    {1, 50, 5200, 0, 0, 1, true},
    {1, 3, 140003},        // one token's in_features in two rounds
    {5, 2, 250007},        // there is no room for five packed rows
    {3, 2, 700001, 0, 1},  // only one is taken at once
    // Tokens in tiles of four and of three, rows beyond the last six, of one round or more, whole and ragged.
    {18, 100, 2048, 2, 0, 1, true},
    {97, 50, 4128},
    {17, 101, 8200, 3, 1, 1, true},
    {3, 110, 8200, 0, 0, 1, true},
};

// The dtypes that can be multiplied.
struct Operands {
  DType weight, x;
};

const Operands kOperands[] = {{DType::float32, DType::float32},
                              {DType::bfloat16, DType::float32},
                              {DType::float16, DType::float32},
                              {DType::bfloat16, DType::bfloat16}};

std::string name_of(const Operands& operands) {
  return fmt::format("weight {} x {}", name_of(operands.weight), name_of(operands.x));
}

// x in either dtype; of bfloat16 the rows lie as far apart.
class X {
 public:
  X(const Rows& rows, DType dtype) : rows_(rows), tensor_(rows_), bits_(dtype == DType::bfloat16 ? size() : 0) {
    if (dtype != DType::bfloat16) return;
    convert(tensor_.data, DType::float32, bits_.data(), DType::bfloat16, size());
    convert(bits_.data(), DType::bfloat16, tensor_.data, DType::float32, size());  // what is multiplied
    tensor_.data = bits_.data();
    tensor_.dtype = DType::bfloat16;
  }
  X(const X&) = delete;
  X& operator=(const X&) = delete;

  Tensor tensor() const { return tensor_; }
  Tensor part(std::int64_t begin, std::int64_t count) const {
    Tensor part = tensor_;
    part.data =
        static_cast<std::byte*>(part.data) + static_cast<std::size_t>(begin * part.row_stride) * size_of(part.dtype);
    part.rows = count;
    return part;
  }
  const float* row(std::int64_t r) const { return rows_.row(r); }

 private:
  std::size_t size() const { return static_cast<std::size_t>(tensor_.rows * tensor_.row_stride); }

  Rows rows_;
  Tensor tensor_;
  std::vector<bfloat16> bits_;
};

float expected_dot(LinearCpuLoops loops, const Operands& operands, const float* x, const float* w, std::int64_t n) {
  if (operands.x != DType::bfloat16) return dot_product(x, w, n);
  return loops == LinearCpuLoops::tiles ? dot_product_of_tiles(x, w, n) : dot_product_of_pairs(x, w, n);
}

// As the products of AMX and of AVX512-BF16 do.
bool takes_subnormals_for_zeros(LinearCpuLoops loops) {
  return loops != LinearCpuLoops::vectors;
}

struct ExactDot {
  double sum, magnitude;
};

// In four chains of additions, which a processor executes side by side.
ExactDot exact_dot(const float* x, const float* w, std::int64_t n) {
  std::array<double, 4> sums{}, magnitudes{};
  for (std::int64_t k = 0; k < n; k += 4)
    for (std::int64_t i = 0; i < 4 && k + i < n; ++i) {
      const double product = static_cast<double>(x[k + i]) * w[k + i];
      sums[static_cast<std::size_t>(i)] += product;
      magnitudes[static_cast<std::size_t>(i)] += std::fabs(product);
    }
  return {.sum = sums[0] + sums[1] + sums[2] + sums[3],
          .magnitude = magnitudes[0] + magnitudes[1] + magnitudes[2] + magnitudes[3]};
}

double bound(LinearCpuLoops loops, double magnitude, std::int64_t n) {
  // A lane's additions, four halvings, the products where they are not fused, and one for the second-order terms; each subnormal rounding adds half of 2^-149.
  // On tiles: sixteen of a step's additions, one of its halves, and one for each of n / 32 steps.
  const double depth = static_cast<double>(n) / 16 + (loops == LinearCpuLoops::tiles ? 20 : 7);
  const double rounding = takes_subnormals_for_zeros(loops) ? 0x1p-126 : 0x1p-150;
  return depth * kUnit * magnitude + static_cast<double>(n + 16) * rounding;
}

// Each implementation that this processor executes, on each instruction set that it has, whichever linear() prefers.
class LinearLoops : public testing::TestWithParam<LinearCpuLoops> {
 protected:
  void SetUp() override {
    if (targets_for(DType::bfloat16).empty()) GTEST_SKIP() << "this processor does not execute them";
  }
  void TearDown() override { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }

  // The instruction sets on which these loops run for x of this dtype.
  static std::vector<std::int64_t> targets_for(DType x) {
    std::vector<std::int64_t> targets;
    for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
      hwy::GetChosenTarget().Update(left & -left);
      if (can_run(linear_cpu_machine(), GetParam(), x)) targets.push_back(left & -left);
    }
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return targets;
  }
};

std::string name_of(const testing::TestParamInfo<LinearCpuLoops>& loops) {
  return loops.param == LinearCpuLoops::tiles       ? "Amx"
         : loops.param == LinearCpuLoops::pair_dots ? "Avx512Bf16"
                                                    : "Vectors";
}

INSTANTIATE_TEST_SUITE_P(Linear, LinearLoops,
                         testing::Values(LinearCpuLoops::vectors, LinearCpuLoops::pair_dots, LinearCpuLoops::tiles),
                         [](const auto& loops) { return name_of(loops); });

TEST_P(LinearLoops, AreTheDotProductOfTheirDefinition) {
  const LinearCpuLoops loops = GetParam();
  ThreadPool pool(2);
  for (const LinearCase& c : kLinearCases) {
    const auto weight_size = static_cast<std::size_t>(c.out_features * c.in_features);
    const Rows rows = Rows::random(c.num_tokens, c.in_features, 1, c.scale, c.gap);
    const std::vector<float> weights = random_floats(weight_size, 2, c.scale);
    // float16 holds neither 1e15 nor 1e-20; there only x is scaled.
    const std::vector<float> float16_weights = random_floats(c.scale == 1 ? 0 : weight_size, 2);
    const std::vector<float> bias = random_floats(static_cast<std::size_t>(c.out_features), 3, c.scale);
    for (const Operands& operands : kOperands) {
      const std::vector<std::int64_t> targets = targets_for(operands.x);
      if (targets.empty()) continue;
      SCOPED_TRACE(
          fmt::format("{} {} tokens [{}, {}]", name_of(operands), c.num_tokens, c.out_features, c.in_features));
      const X x(rows, operands.x);
      const bool unscaled = operands.weight == DType::float16 && c.scale != 1;
      const Elements elements(unscaled ? float16_weights : weights, operands.weight, c.misalignment);
      const std::vector<float> w = elements.floats();
      Weight weight = one_block(elements, operands.weight, c.out_features, c.in_features);
      if (c.has_bias) weight.bias = bias.data();
      struct Expected {
        double exact, bound;
        float bits;
      };
      std::vector<Expected> all;  // [tokens, rows], made where the first target wants it
      for (const std::int64_t target : targets) {
        hwy::GetChosenTarget().Update(target);
        SCOPED_TRACE(cpu_target().name);
        const Rows y(c.num_tokens, c.out_features, c.gap);
        linear_cpu({.x = x.tensor(), .weight = weight, .y = y}, loops, pool);
        const bool first_target = all.empty();
        for (std::int64_t t = 0; first_target && t < c.num_tokens; ++t) {
          for (std::int64_t r = 0; r < c.out_features; ++r) {
            const float* row = w.data() + r * c.in_features;
            const float b = c.has_bias ? bias[static_cast<std::size_t>(r)] : 0;
            const ExactDot products = exact_dot(x.row(t), row, c.in_features);
            const double exact = b + products.sum;
            const float dot = expected_dot(loops, operands, x.row(t), row, c.in_features);
            all.push_back({.exact = exact,
                           .bound = bound(loops, products.magnitude, c.in_features) + kUnit * std::fabs(exact),
                           .bits = c.has_bias ? dot + b : dot});
          }
        }
        for (std::int64_t t = 0; t < c.num_tokens; ++t) {
          for (std::int64_t r = 0; r < c.out_features; ++r) {
            const Expected& expected = all[static_cast<std::size_t>(t * c.out_features + r)];
            ASSERT_NEAR(y.row(t)[r], expected.exact, expected.bound) << "token " << t << " row " << r;
            if (cpu_target().fused_multiply_add && (c.scale >= 1 || !takes_subnormals_for_zeros(loops))) {
              ASSERT_EQ(std::bit_cast<std::uint32_t>(y.row(t)[r]), std::bit_cast<std::uint32_t>(expected.bits))
                  << "token " << t << " row " << r;
            }
          }
        }
        EXPECT_TRUE(y.gaps_untouched());
      }
    }
  }
}

TEST(Linear, RunsTheLoopsOfItsChoice) {
  constexpr int kTokens = 5, kOut = 50, kIn = 300;
  const std::vector<float> weights = random_floats(kOut * kIn, 6);
  ThreadPool pool(2);
  for (const Operands& operands : kOperands) {
    const X x(Rows::random(kTokens, kIn, 5), operands.x);
    const Elements elements(weights, operands.weight);
    const Weight weight = one_block(elements, operands.weight, kOut, kIn);
    const Rows y(kTokens, kOut), expected(kTokens, kOut);
    on_cpu(2, [&](Stream& stream) { linear({.x = x.tensor(), .weight = weight, .y = y}, stream); });
    linear_cpu({.x = x.tensor(), .weight = weight, .y = expected}, loops_for(linear_cpu_machine(), operands.x), pool);
    EXPECT_EQ(bits(y), bits(expected)) << name_of(operands);
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
  constexpr int kIn = 72, kOut = 103;
  const int rows[] = {13, 30, 60};
  const std::vector<float> values = random_floats(kOut * kIn, 3), bias = random_floats(kOut, 5);
  for (const Operands& operands : kOperands) {
    const Elements whole(values, operands.weight);
    const auto part = [&](int first, int count, int misalignment) {
      return Elements(std::vector<float>(values.begin() + first * kIn, values.begin() + (first + count) * kIn),
                      operands.weight, misalignment);
    };
    const Elements a = part(0, 13, 1), b = part(13, 30, 2), c = part(43, 60, 3);
    Weight stacked = one_block(a, operands.weight, rows[0], kIn);
    stacked.blocks[1] = {b.data(), rows[1]};
    stacked.blocks[2] = {c.data(), rows[2]};
    stacked.out_features = kOut;
    Weight one = one_block(whole, operands.weight, kOut, kIn);
    stacked.bias = one.bias = bias.data();
    for (const int tokens : {1, 3, 8, 17}) {
      const X x(Rows::random(tokens, kIn, 4), operands.x);
      const Rows y(tokens, kOut), expected(tokens, kOut);
      on_cpu(1, [&](Stream& stream) {
        linear({.x = x.tensor(), .weight = stacked, .y = y}, stream);
        linear({.x = x.tensor(), .weight = one, .y = expected}, stream);
      });
      EXPECT_EQ(bits(y), bits(expected)) << name_of(operands) << " " << tokens << " tokens";
    }
  }
}

constexpr std::size_t kStackBytes = (kSanitizer ? 8 : 2) << 20;  // sanitizers take some of it, too

// Threads have that little where the limit of the shell is `unlimited`. Numbers left by a product of NaN show nowhere.
TEST(Linear, NeedsNoMoreThanAStackOf2MiBAndNothingThatLiesThere) {
  pthread_attr_t before, small;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&small), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&small, kStackBytes), 0);
  ASSERT_EQ(pthread_setattr_default_np(&small), 0);
  constexpr int kIn = 2085, kOut = 50;
  for (const Operands& operands : kOperands) {
    const Elements elements(random_floats(kOut * kIn, 2), operands.weight);
    const Weight weight = one_block(elements, operands.weight, kOut, kIn);
    const Elements larger(random_floats(kOut * 9000, 2), operands.weight);
    const Weight larger_weight = one_block(larger, operands.weight, kOut, 9000);
    for (const int tokens : {1, 2, 7, 15, 30}) {
      const X x(Rows::random(tokens, kIn, 1), operands.x);
      Rows nans(tokens, 9000);
      for (int t = 0; t < tokens; ++t) std::fill_n(nans.row(t), 9000, std::numeric_limits<float>::quiet_NaN());
      const X poison(nans, operands.x);
      const Rows y(tokens, kOut), expected(tokens, kOut), none(tokens, kOut);
      on_cpu(2, [&](Stream& stream) { linear({.x = x.tensor(), .weight = weight, .y = expected}, stream); });
      on_cpu(2, [&](Stream& stream) {
        linear({.x = poison.tensor(), .weight = larger_weight, .y = none}, stream);
        linear({.x = x.tensor(), .weight = weight, .y = y}, stream);
      });
      EXPECT_EQ(bits(y), bits(expected)) << name_of(operands) << " " << tokens << " tokens";
    }
  }
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  pthread_attr_destroy(&small);
  pthread_attr_destroy(&before);
}

// A kernel on a GPU walks over all rows with one pointer.
TEST(Linear, OnAGpuBlocksMustLieBackToBack) {
  const Elements elements(60, DType::bfloat16);
  const auto* const first = static_cast<const std::byte*>(elements.data());
  Weight weight = one_block(elements, DType::bfloat16, 6, 10);
  require_one_run(weight, "linear");
  weight.blocks = {{{first, 2}, {first + 40, 4}, {nullptr, 0}}};
  require_one_run(weight, "linear");
  weight.blocks = {{{first, 2}, {nullptr, 0}, {first + 40, 4}}};  // an empty block lies nowhere
  require_one_run(weight, "linear");
  weight.blocks = {{{first, 2}, {first + 42, 4}, {nullptr, 0}}};
  expect_invalid([&] { require_one_run(weight, "linear"); }, "linear: the blocks of a weight on a GPU must lie back");
  weight.blocks = {{{first, 2}, {first + 40, 2}, {first + 40, 2}}};
  expect_invalid([&] { require_one_run(weight, "linear"); }, "back to back");
}

TEST(Linear, BitsDependOnNeitherThreadsNorBatchNorAlignmentNorVectorWidth) {
  constexpr int kTokens = 37, kOut = 110, kIn = 4201;
  const Rows values = Rows::random(kTokens, kIn, 5);
  const std::vector<float> weights = random_floats(kOut * kIn, 6);
  for (const Operands& operands : kOperands) {
    SCOPED_TRACE(name_of(operands));
    const X x(values, operands.x);
    const Elements elements(weights, operands.weight), misaligned(weights, operands.weight, 3);
    const Weight weight = one_block(elements, operands.weight, kOut, kIn);
    const Rows expected(kTokens, kOut);
    on_cpu(1, [&](Stream& stream) { linear({.x = x.tensor(), .weight = weight, .y = expected}, stream); });
    for (const int threads : {2, 5}) {
      const Rows y(kTokens, kOut);
      on_cpu(threads, [&](Stream& stream) { linear({.x = x.tensor(), .weight = weight, .y = y}, stream); });
      EXPECT_EQ(bits(y), bits(expected)) << threads << " threads";
    }
    for (const int batch : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 25, 33}) {
      const Rows y(batch, kOut);
      on_cpu(1,
             [&](Stream& stream) { linear({.x = x.part(kTokens - batch, batch), .weight = weight, .y = y}, stream); });
      EXPECT_EQ(bits(y), bits(expected, kTokens - batch, batch)) << "batch of " << batch;
    }
    const Rows y(kTokens, kOut);
    on_cpu(1, [&](Stream& stream) {
      linear({.x = x.tensor(), .weight = one_block(misaligned, operands.weight, kOut, kIn), .y = y}, stream);
    });
    EXPECT_EQ(bits(y), bits(expected)) << "misaligned";
    if (!cpu_target().fused_multiply_add) continue;
    const bool on_tiles = cpu_target().bfloat16_tiles;
    for_each_fused_target([&] {
      if (operands.x == DType::bfloat16 && cpu_target().bfloat16_tiles != on_tiles) return;  // another order
      for (const int batch : {1, 2, 3, 4, 8, 15, kTokens}) {
        const Rows other(batch, kOut);
        on_cpu(1, [&](Stream& stream) {
          linear({.x = x.part(kTokens - batch, batch), .weight = weight, .y = other}, stream);
        });
        EXPECT_EQ(bits(other), bits(expected, kTokens - batch, batch)) << cpu_target().name << " batch of " << batch;
      }
    });
  }
}

TEST(Linear, NeedsNoWorkspaceOnTheCpu) {
  EXPECT_EQ(linear_workspace_bytes(Device{}), 0u);
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
  broken([](LinearParams& p) { p.x.dtype = DType::float16; }, "linear: x is float16, expected float32 or bfloat16");
  broken([](LinearParams& p) { p.x.dtype = DType::bfloat16; }, "x is bfloat16 and the weight float32");
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
