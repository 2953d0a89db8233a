#include "kernels/attention/rope.h"
#include "kernels/cuda_operands.h"

namespace heddle {
namespace {

using RopeOnGpu = OnGpu;

struct GpuRopeCase {
  int head_dim, num_heads, num_kv_heads;
  float scale = 1;
};

const GpuRopeCase kGpuRopeCases[] = {
    {2, 1, 1}, {16, 3, 1}, {24, 6, 2}, {64, 32, 8}, {128, 40, 8}, {130, 3, 1, 1.1386294f}, {256, 2, 1}};

// Far positions too: a float32 angle of 2^31 is turned as exactly as one of 1.
TEST_F(RopeOnGpu, GivesTheBitsOfTheCpu) {
  const std::vector<std::int32_t> positions = {0, 1,       2,      1000,   131071,        7,
                                               7, 1 << 20, 105615, 105616, (1 << 24) + 1, 2147483647};
  const auto tokens = static_cast<std::int64_t>(positions.size());
  const GpuArray<std::int32_t> positions_there(positions);
  for (const GpuRopeCase& c : kGpuRopeCases) {
    for (const DType dtype : kDTypes) {
      for (const GpuRows::Placement placement : kPlacements) {
        SCOPED_TRACE(fmt::format("head_dim {} {} gap {} misalignment {}", c.head_dim, name_of(dtype), placement.gap,
                                 placement.misalignment));
        std::vector<float> inv_freq;
        for (int i = 0; i < c.head_dim; i += 2)
          inv_freq.push_back(static_cast<float>(std::pow(500000.0, -double(i) / c.head_dim)));
        const GpuArray<float> inv_freq_there(inv_freq);
        const int q_columns = c.num_heads * c.head_dim, k_columns = c.num_kv_heads * c.head_dim;
        const Rows before = rounded(Rows::random(tokens, q_columns + 2 * k_columns, 1), dtype), expected = before;
        const GpuRows fused(before, dtype, placement);
        const auto turn = [&](Tensor x, const std::int32_t* at, const float* frequencies, Stream& stream) {
          rope({.q = x.column_slice(0, q_columns),
                .k = x.column_slice(q_columns, k_columns),
                .positions = at,
                .inv_freq = frequencies,
                .head_dim = c.head_dim,
                .scale = c.scale},
               stream);
        };
        on_cpu(1, [&](Stream& stream) { turn(expected, positions.data(), inv_freq.data(), stream); });
        on_gpu([&](Stream& stream) { turn(fused, positions_there.data(), inv_freq_there.data(), stream); });
        EXPECT_EQ(bits(fused.rows()), bits(rounded(expected, dtype)));
        EXPECT_TRUE(fused.rows().gaps_untouched());
      }
    }
  }
}

}  // namespace
}  // namespace heddle
