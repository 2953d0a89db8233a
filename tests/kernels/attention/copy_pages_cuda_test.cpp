#include "copy_pages_cases.h"
#include "kernels/cuda_operands.h"

namespace heddle {
namespace {

using CopyPagesOnGpu = OnGpu;

TEST_F(CopyPagesOnGpu, MovesInOrderInEveryHalf) {
  for (const PagesCase& c : kPagesCases) {
    for (const std::size_t misalignment : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} halves, pages of {} bytes", c.num_halves, c.page_bytes));
      const std::vector<std::byte> before = random_pages(c);
      GpuArray<std::byte> pages(before, misalignment);
      on_gpu([&](Stream& stream) { copy_pages(moves_of(c, pages.data()), stream); });
      EXPECT_TRUE(pages.values() == moved(before, c));
    }
  }
}

}  // namespace
}  // namespace heddle
