#include "parallel/local.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/thread_pool.h"
#include "parallel/operands.h"

namespace heddle {
namespace {

constexpr int kTokens = 3;

class LocalStrategyTest : public testing::Test {
 protected:
  void expect_normalized(const std::vector<float>& sum) {
    for (int t = 0; t < kTokens; ++t) {
      double squares = 0;
      for (int i = 0; i < kHidden; ++i)
        squares += std::pow(static_cast<double>(sum[static_cast<std::size_t>(t * kHidden + i)]), 2);
      for (int i = 0; i < kHidden; ++i) {
        const auto at = static_cast<std::size_t>(t * kHidden + i);
        const double expected = sum[at] / std::sqrt(squares / kHidden + 1e-5) * weight_[static_cast<std::size_t>(i)];
        EXPECT_NEAR(normalized_[at], expected, 1e-6);
      }
    }
  }

  ThreadPool pool_{2};
  Stream stream_{pool_};
  LocalStrategy strategy_;
  std::vector<float> weight_ = ramp(kHidden, 0.3f);
  std::vector<float> residual_ = ramp(kTokens * kHidden, 0.7f);
  std::vector<float> delta_ = ramp(kTokens * kHidden, 1.1f);
  std::vector<float> normalized_ = std::vector<float>(kTokens * kHidden);
};

TEST_F(LocalStrategyTest, AddsWhatIsPendingToTheResidualAndNormalisesTheSum) {
  std::vector<float> sum(residual_.size());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = residual_[i] + delta_[i];
  strategy_.normalize({.residual = view(residual_, kHidden), .delta = view(delta_, kHidden)}, {weight_.data(), 1e-5f},
                      view(normalized_, kHidden), stream_);
  stream_.synchronize();
  EXPECT_EQ(residual_, sum);
  expect_normalized(sum);
}

TEST_F(LocalStrategyTest, LeavesTheResidualWhenNothingIsPending) {
  const std::vector<float> before = residual_;
  strategy_.normalize({.residual = view(residual_, kHidden)}, {weight_.data(), 1e-5f}, view(normalized_, kHidden),
                      stream_);
  stream_.synchronize();
  EXPECT_EQ(residual_, before);
  expect_normalized(before);
}

TEST_F(LocalStrategyTest, MultipliesByTheTransposedWeight) {
  std::vector<float> matrix = ramp(5 * kHidden, 0.2f);
  const Weight weight{.blocks = {{{matrix.data(), 5}}}, .out_features = 5, .in_features = kHidden};
  std::vector<float> y(kTokens * 5);
  strategy_.linear(view(residual_, kHidden), weight, LinearRole::alone, view(y, 5), stream_);
  stream_.synchronize();
  for (std::size_t t = 0; t < kTokens; ++t)
    for (std::size_t n = 0; n < 5; ++n) {
      double expected = 0;
      for (std::size_t k = 0; k < kHidden; ++k)
        expected += static_cast<double>(residual_[t * kHidden + k]) * matrix[n * kHidden + k];
      EXPECT_NEAR(y[t * 5 + n], expected, 1e-5);
    }
}

}  // namespace
}  // namespace heddle
