#include "kernels/cuda_operands.h"
#include "kernels/rows/gather_rows.h"

namespace heddle {
namespace {

using GatherRowsOnGpu = OnGpu;

TEST_F(GatherRowsOnGpu, CopiesTheRowsNamedAndGivesNanForOthers) {
  for (const DType dtype : kDTypes) {
    for (const int columns : {1, 19, 64, 8192}) {
      for (const GpuRows::Placement placement : kPlacements) {
        SCOPED_TRACE(fmt::format("{} columns {} gap {}", name_of(dtype), columns, placement.gap));
        const Rows values = rounded(Rows::random(6, columns, 1), dtype);
        const std::vector<std::int32_t> rows = {5, 0, 5, 2, 6, -1};
        const GpuArray<std::int32_t> rows_there(rows);
        const GpuRows x(values, dtype, placement), y(6, columns, dtype, placement);
        on_gpu([&](Stream& stream) { gather_rows({.x = x, .rows = rows_there.data(), .y = y}, stream); });
        const Rows result = y.rows();
        for (int i = 0; i < 4; ++i) EXPECT_EQ(bits(result, i, 1), bits(values, rows[static_cast<std::size_t>(i)], 1));
        for (int i = 4; i < 6; ++i)
          for (int c = 0; c < columns; ++c) ASSERT_TRUE(std::isnan(result.row(i)[c]));
        EXPECT_TRUE(result.gaps_untouched());
      }
    }
  }
}

TEST_F(GatherRowsOnGpu, KeepsTheDtype) {
  Stream stream(kGpu);
  const GpuArray<std::int32_t> rows(std::vector<std::int32_t>{0});
  const GpuRows x(Rows::random(1, 8, 1), DType::bfloat16), y(1, 8, DType::float32);
  expect_invalid([&] { gather_rows({.x = x, .rows = rows.data(), .y = y}, stream); },
                 "gather_rows: x is bfloat16, y float32");
}

}  // namespace
}  // namespace heddle
