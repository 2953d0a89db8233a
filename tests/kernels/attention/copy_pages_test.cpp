#include "copy_pages_cases.h"

namespace heddle {
namespace {

TEST(CopyPages, MovesInOrderInEveryHalf) {
  for (const PagesCase& c : kPagesCases) {
    SCOPED_TRACE(fmt::format("{} halves, pages of {} bytes", c.num_halves, c.page_bytes));
    const std::vector<std::byte> before = random_pages(c);
    std::vector<std::byte> pages = before;
    on_cpu(3, [&](Stream& stream) { copy_pages(moves_of(c, pages.data()), stream); });
    EXPECT_TRUE(pages == moved(before, c));
  }
}

TEST(CopyPages, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<std::byte> pages(18);
  const auto broken = [&](auto change, const std::string& part) {
    CopyPagesParams params = moves_of({2, 9, 1}, pages.data());
    change(params);
    expect_invalid([&] { copy_pages(params, stream); }, part);
  };
  broken([](CopyPagesParams& p) { p.moves[3].to = 9; }, "copy_pages: move 3 is of page 6 to page 9 of 9");
  broken([](CopyPagesParams& p) { p.moves[0].from = -1; }, "copy_pages: move 0 is of page -1");
  broken([](CopyPagesParams& p) { p.num_moves = 33; }, "copy_pages: 33 moves, at most 32");
  broken([](CopyPagesParams& p) { p.num_halves = -1; }, "copy_pages: -1 halves");
  broken([](CopyPagesParams& p) { p.data = nullptr; }, "copy_pages: data is null");
  copy_pages({}, stream);
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
