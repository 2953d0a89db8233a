#include "kernels/cuda_operands.h"
#include "kernels/rows/embedding.h"

namespace heddle {
namespace {

using EmbeddingOnGpu = OnGpu;

TEST_F(EmbeddingOnGpu, CopiesRowsAsTheCpuDoes) {
  for (const DType dtype : kDTypes) {
    for (const DType out : kDTypes) {
      for (const int hidden : {1, 7, 72, 4096}) {
        for (const GpuRows::Placement placement : kPlacements) {
          SCOPED_TRACE(fmt::format("{} to {} hidden {} gap {} misalignment {}", name_of(dtype), name_of(out), hidden,
                                   placement.gap, placement.misalignment));
          const std::vector<float> values = rounded(random_floats(static_cast<std::size_t>(8 * hidden), 1), dtype);
          const std::size_t split = static_cast<std::size_t>(5 * hidden);
          const GpuArray<std::byte> first(as_bytes({values.begin(), values.begin() + split}, dtype),
                                          placement.misalignment * size_of(dtype));
          const GpuArray<std::byte> second(as_bytes({values.begin() + split, values.end()}, dtype));
          Weight table;
          table.blocks[0] = {first.data(), 5};
          table.blocks[1] = {second.data(), 3};
          table.out_features = 8;
          table.in_features = hidden;
          table.dtype = dtype;
          // The last two are not in the table.
          const std::vector<std::int32_t> tokens = {7, 0, 4, 5, 5, 8, -1};
          const GpuArray<std::int32_t> tokens_there(tokens);
          const GpuRows y(7, hidden, out, placement);
          on_gpu([&](Stream& stream) { embedding({.table = table, .tokens = tokens_there.data(), .y = y}, stream); });
          const Rows result = y.rows();
          for (std::int64_t t = 0; t < 5; ++t)
            for (int i = 0; i < hidden; ++i)
              ASSERT_EQ(
                  result.row(t)[i],
                  rounded(values[static_cast<std::size_t>(tokens[static_cast<std::size_t>(t)] * hidden + i)], out));
          for (std::int64_t t = 5; t < 7; ++t)
            for (int i = 0; i < hidden; ++i) ASSERT_TRUE(std::isnan(result.row(t)[i]));
          EXPECT_TRUE(result.gaps_untouched());
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle
