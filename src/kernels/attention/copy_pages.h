// Copies pages of the KV cache, of all planes and layers: copy-on-write for a sequence that is about to write into
// a page that it shares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/lane.h"

namespace heddle {

struct PageMove {
  std::int32_t from = 0, to = 0;  // pages, in [0, num_pages)
};

struct CopyPagesParams {
  static constexpr int kMostMoves = 32;  // passed by value, so that nobody has to keep or upload a list

  void* data{};              // [num_halves, num_pages] pages; a half is one plane, such as keys, of one layer
  int num_halves = 0;        // planes * layers
  int num_pages = 0;         // per half
  std::size_t page_bytes{};  // per page and half
  std::array<PageMove, kMostMoves> moves{};
  int num_moves = 0;
};

// Enqueues on the lane's stream the moves in order: one may read what an earlier one wrote, or overwrite what it read.
// Throws InvalidArgument unless the pages exist.
void copy_pages(const CopyPagesParams& params, const Lane& lane);

}  // namespace heddle
