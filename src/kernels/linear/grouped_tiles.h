// The order in which a GEMM takes its tiles: some rows of tiles together, column by column, so that the operands of the
// tiles in flight stay in L2.
#pragma once

#include "base/host_device.h"

namespace heddle {

struct GroupedTiles {
  int rows, columns;  // of tiles
  int together;       // rows of tiles that are taken together

  struct Place {
    int row, column;
  };

  HEDDLE_HOST_DEVICE constexpr int count() const { return rows * columns; }
  HEDDLE_HOST_DEVICE constexpr Place at(int index) const {
    const int of_group = together * columns, first = index / of_group * together;
    const int here = rows - first < together ? rows - first : together, inside = index % of_group;
    return {.row = first + inside % here, .column = inside / here};
  }
};

constexpr bool takes_each_tile_once(const GroupedTiles& tiles) {
  for (int row = 0; row < tiles.rows; ++row)
    for (int column = 0; column < tiles.columns; ++column) {
      int times = 0;
      for (int index = 0; index < tiles.count(); ++index) {
        const GroupedTiles::Place place = tiles.at(index);
        times += place.row == row && place.column == column ? 1 : 0;
      }
      if (times != 1) return false;
    }
  return true;
}
static_assert(takes_each_tile_once({.rows = 1, .columns = 5, .together = 8}) &&
              takes_each_tile_once({.rows = 8, .columns = 2, .together = 8}) &&
              takes_each_tile_once({.rows = 19, .columns = 3, .together = 8}));

}  // namespace heddle
