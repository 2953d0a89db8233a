// Sums of partial products over ranks, over a Group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "device/group.h"

namespace heddle {

// Adds the ranks' float32 products of one tile to y, one rank at a time and in rank order, so that every sum has the
// same bits wherever it is taken.
struct SumTile {
  const std::byte* partials;  // of rank 0: [rows, columns], packed
  std::size_t bytes_apart;    // from one rank's to the next rank's
  float* y;                   // [rows, columns], rows y_stride elements apart
  std::int64_t rows, columns, y_stride;

  // Of rank `rank`; the first one overwrites y. A lane adds the same elements in every call.
  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group, int rank) const {
    const auto* const from = reinterpret_cast<const float*>(partials + static_cast<std::size_t>(rank) * bytes_apart);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* const to = y + row * y_stride;
      const float* const add = from + row * columns;
      if (rank == 0)
        for (std::int64_t i = group.lane(); i < columns; i += group.lanes()) to[i] = add[i];
      else
        for (std::int64_t i = group.lane(); i < columns; i += group.lanes()) to[i] += add[i];
    }
  }
};

}  // namespace heddle
