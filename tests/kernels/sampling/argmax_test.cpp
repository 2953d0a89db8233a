#include "kernels/sampling/argmax.h"

#include "kernels/operands.h"

namespace heddle {
namespace {

TEST(Argmax, IsTheFirstOfTheLargestAndTellsUnsoundRows) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Rows logits = Rows::of({1,          3,          2,          3,           //
                                -5,         -kInfinity, -7,         -kInfinity,  //
                                0,          kPoison,    9,          1,           //
                                0,          1,          kInfinity,  1,           //
                                -kInfinity, -kInfinity, -kInfinity, -kInfinity},
                               5, 4, 3);
  for (const int threads : {1, 3}) {
    std::vector<std::int32_t> tokens(5, 99);
    on_cpu(threads, [&](Stream& stream) { argmax({.logits = logits, .tokens = tokens.data()}, stream); });
    EXPECT_THAT(tokens, testing::ElementsAre(1, 0, kUnsoundRow, kUnsoundRow, kUnsoundRow));
  }
}

TEST(Argmax, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Rows logits = Rows::random(2, 5, 1);
  expect_invalid([&] { argmax({.logits = logits}, stream); }, "argmax: tokens is null");
  Tensor half = logits;
  half.dtype = DType::bfloat16;
  std::int32_t tokens[2];
  expect_invalid([&] { argmax({.logits = half, .tokens = tokens}, stream); }, "argmax: logits is bfloat16");
  argmax({.logits = {nullptr, 0, 5, 5}}, stream);
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
