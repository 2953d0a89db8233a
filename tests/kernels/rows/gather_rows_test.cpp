#include "kernels/rows/gather_rows.h"

#include "kernels/operands.h"

namespace heddle {
namespace {

TEST(GatherRows, CopiesTheRowsNamed) {
  const Rows x = Rows::random(6, 19, 1, 1, 2);
  const std::vector<std::int32_t> rows = {5, 0, 5, 2};
  const Rows y(4, 19, 3);
  on_cpu(2, [&](Stream& stream) { gather_rows({.x = x, .rows = rows.data(), .y = y}, stream); });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(bits(y, i, 1), bits(x, rows[static_cast<std::size_t>(i)], 1));
  EXPECT_TRUE(y.gaps_untouched());
}

TEST(GatherRows, FailsOnARowThatIsNotThere) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Rows x = Rows::random(6, 4, 1), y(1, 4);
  for (const std::int32_t bad : {6, -1}) {
    gather_rows({.x = x, .rows = &bad, .y = y}, stream);
    expect_invalid([&] { stream.synchronize(); }, fmt::format("rows[0] is {}, x has 6 rows", bad));
  }
}

TEST(GatherRows, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Rows x = Rows::random(6, 4, 1), y(1, 4);
  const std::int32_t row = 0;
  expect_invalid([&] { gather_rows({.x = x, .rows = nullptr, .y = y}, stream); }, "gather_rows: rows is null");
  expect_invalid([&] { gather_rows({.x = x, .rows = &row, .y = Rows(1, 5)}, stream); },
                 "gather_rows: y is [1, 5], expected [1, 4]");
  expect_invalid(
      [&] {
        gather_rows({.x = {nullptr, 6, 4, 4}, .rows = &row, .y = y}, stream);
      },
      "gather_rows: x is null");
  gather_rows({.x = x, .rows = nullptr, .y = {nullptr, 0, 4, 4}}, stream);
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
