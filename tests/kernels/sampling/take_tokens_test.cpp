#include "kernels/sampling/take_tokens.h"

#include "kernels/operands.h"

namespace heddle {
namespace {

TEST(TakeTokens, TakesWhatWasChosenAndLeavesTheRest) {
  std::vector<std::int32_t> tokens = {7, ~2, 0, ~0, ~3, ~1};
  const std::vector<std::int32_t> chosen = {40, -1, 42};
  on_cpu(2, [&](Stream& stream) {
    take_tokens({.tokens = tokens.data(), .chosen = chosen.data(), .num_tokens = 6, .num_chosen = 3}, stream);
  });
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{7, 42, 0, 40, 0, 0}));
}

TEST(TakeTokens, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  std::int32_t token = 0;
  expect_invalid([&] { take_tokens({.num_tokens = 1}, stream); }, "take_tokens: tokens is null");
  expect_invalid([&] { take_tokens({.tokens = &token, .num_tokens = 1, .num_chosen = 1}, stream); },
                 "take_tokens: chosen is null");
  take_tokens({}, stream);
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
