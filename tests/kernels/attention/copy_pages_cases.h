// Moves of pages that depend on each other, and what must come of them.
#pragma once

#include <cstring>

#include "kernels/attention/copy_pages.h"
#include "kernels/operands.h"

namespace heddle {

struct PagesCase {
  int num_halves, num_pages;
  std::size_t page_bytes;
};

inline constexpr PagesCase kPagesCases[] = {{2, 9, 1}, {6, 9, 24}, {4, 9, 16 * 1500}, {2, 9, 100'003}};

// A chain, a page that is read before it is overwritten, one that is written twice, one that moves to itself.
inline CopyPagesParams moves_of(const PagesCase& c, void* data) {
  CopyPagesParams params{
      .data = data, .num_halves = c.num_halves, .num_pages = c.num_pages, .page_bytes = c.page_bytes};
  for (const PageMove move : {PageMove{0, 5}, {5, 6}, {1, 5}, {6, 1}, {8, 0}, {3, 3}, {2, 7}, {4, 7}})
    params.moves[static_cast<std::size_t>(params.num_moves++)] = move;
  return params;
}

inline std::vector<std::byte> random_pages(const PagesCase& c) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(c.page_bytes * static_cast<std::size_t>(c.num_halves * c.num_pages));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// One move after the other.
inline std::vector<std::byte> moved(std::vector<std::byte> pages, const PagesCase& c) {
  const CopyPagesParams params = moves_of(c, nullptr);
  for (int half = 0; half < c.num_halves; ++half)
    for (int i = 0; i < params.num_moves; ++i) {
      const auto at = [&](int page) {
        return pages.data() + static_cast<std::size_t>(half * c.num_pages + page) * c.page_bytes;
      };
      const PageMove move = params.moves[static_cast<std::size_t>(i)];
      std::memmove(at(move.to), at(move.from), c.page_bytes);
    }
  return pages;
}

}  // namespace heddle
