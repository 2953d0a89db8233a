// How float32 sums lie in a slot on a GPU: as the threads of a warpgroup hold them after WGMMA, so that a warp stores
// 512 contiguous bytes at a time, into another GPU's memory too. A slot has row groups of 64 rows; each has
// kFragmentColumns columns. Its vectors of four sums are ordered by row group, eight columns, thread.
#pragma once

#include "base/host_device.h"

namespace heddle {

struct Fragments {
  static constexpr int kGroupRows = 64, kColumns = 128, kThreads = 128;
  static constexpr int kVectorsOfGroup = kGroupRows * kColumns / 4;

  // Where a vector's sums belong: rows `row` and `row + 8`, of each columns `column` and the next, in this order.
  struct Place {
    int row, column;
  };

  static HEDDLE_HOST_DEVICE constexpr int vectors(int rows) { return rows / kGroupRows * kVectorsOfGroup; }
  static HEDDLE_HOST_DEVICE constexpr int vector(int row_group, int eight_columns, int thread) {
    return row_group * kVectorsOfGroup + eight_columns * kThreads + thread;
  }
  static HEDDLE_HOST_DEVICE constexpr Place place(int vector) {
    const int thread = vector % kThreads, lane = thread % 32;
    return {.row = vector / kVectorsOfGroup * kGroupRows + thread / 32 * 16 + lane / 4,
            .column = vector % kVectorsOfGroup / kThreads * 8 + lane % 4 * 2};
  }
  // Of one sum among the slot's floats.
  static HEDDLE_HOST_DEVICE constexpr int element(int row, int column) {
    const int lane = row % 8 * 4 + column % 8 / 2, thread = row % kGroupRows / 16 * 32 + lane;
    return 4 * vector(row / kGroupRows, column / 8, thread) + row % 16 / 8 * 2 + column % 2;
  }
};

constexpr bool fragments_agree(int rows) {
  for (int vector = 0; vector < Fragments::vectors(rows); ++vector) {
    const Fragments::Place place = Fragments::place(vector);
    for (int i = 0; i < 4; ++i)
      if (Fragments::element(place.row + i / 2 * 8, place.column + i % 2) != 4 * vector + i) return false;
  }
  return true;
}
static_assert(fragments_agree(128));

}  // namespace heddle
