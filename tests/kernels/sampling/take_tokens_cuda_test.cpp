#include <algorithm>

#include "base/pinned_buffer.h"
#include "kernels/cuda_operands.h"
#include "kernels/sampling/take_tokens.h"

namespace heddle {
namespace {

using TakeTokensOnGpu = OnGpu;

TEST_F(TakeTokensOnGpu, TakesWhatWasChosenFromEitherMemory) {
  constexpr std::int32_t kChosen = 300;
  std::vector<std::int32_t> tokens(1000), expected(1000), chosen(kChosen);
  for (std::int32_t i = 0; i < kChosen; ++i) chosen[i] = i == 17 ? -1 : 5000 + i;
  for (std::int32_t i = 0; i < 1000; ++i) {
    tokens[i] = i % 3 == 0 ? i : ~(i % 310);
    expected[i] = i % 3 == 0 ? i : i % 310 < kChosen ? std::max(chosen[i % 310], 0) : 0;
  }
  const GpuArray<std::int32_t> there(chosen);
  PinnedBuffer pinned(kChosen * sizeof(std::int32_t));
  std::ranges::copy(chosen, reinterpret_cast<std::int32_t*>(pinned.data()));
  for (const std::int32_t* source : {there.data(), reinterpret_cast<const std::int32_t*>(pinned.data())}) {
    GpuArray<std::int32_t> array(tokens);
    on_gpu([&](Stream& stream) {
      take_tokens({.tokens = array.data(), .chosen = source, .num_tokens = 1000, .num_chosen = kChosen}, stream);
    });
    EXPECT_EQ(array.values(), expected);
  }
}

}  // namespace
}  // namespace heddle
