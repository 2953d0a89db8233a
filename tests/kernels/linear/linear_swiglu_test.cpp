#include "kernels/linear/linear_swiglu.h"

#include "kernels/operands.h"
#include "kernels/rows/swiglu.h"

namespace heddle {
namespace {

TEST(LinearSwiglu, IsTheProductAndThenTheGates) {
  constexpr std::int64_t kTokens = 3, kWidth = 37, kIn = 50;
  const Rows x = Rows::random(kTokens, kIn, 1), w = Rows::random(2 * kWidth, kIn, 2);
  Weight weight;
  weight.blocks[0] = {w.row(0), 2 * kWidth};
  weight.out_features = 2 * kWidth;
  weight.in_features = kIn;
  const Rows gate_up(kTokens, 2 * kWidth), scratch(kTokens, 2 * kWidth), wanted(kTokens, kWidth), y(kTokens, kWidth, 3);
  on_cpu(2, [&](Stream& stream) {
    linear({.x = x, .weight = weight, .y = gate_up}, stream);
    swiglu({.gate_up = gate_up, .y = wanted}, stream);
    linear_swiglu({.gate_up = {.x = x, .weight = weight, .y = scratch}, .y = y}, stream);
  });
  EXPECT_EQ(bits(y), bits(wanted));
  EXPECT_TRUE(y.gaps_untouched());
}

TEST(LinearSwiglu, NamesTheBrokenPrecondition) {
  const Rows x(2, 8), w(6, 8), scratch(2, 6), y(2, 4);
  Weight weight;
  weight.blocks[0] = {w.row(0), 6};
  weight.out_features = 6;
  weight.in_features = 8;
  on_cpu(1, [&](Stream& stream) {
    expect_invalid([&] { linear_swiglu({.gate_up = {.x = x, .weight = weight, .y = scratch}, .y = y}, stream); },
                   "swiglu: gate_up is [2, 6], expected [2, 8]");
  });
}

}  // namespace
}  // namespace heddle
