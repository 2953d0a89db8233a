// How a block of direct_norm_sm90.cuh divides its shared memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace heddle {

// Constructed on the host; trivially copyable. In this order: a ring of rows of the residual, in float32; a ring of rows that
// come in from every rank, in rank order, whole rows of all ranks.
//
// Rows go to the groups of warps by turns. Both rings have room for as many rows of each group, so a slot is one group's
// alone: a group that did not wait for each phase of a slot's barrier would take one phase for another of the same parity.
class DirectNormRoom {
 public:
  static constexpr std::uint32_t kMostGroups = 2, kMostResiduals = 6, kMostShares = 24;
  // Of a block of Hopper, less what its barriers and sums take.
  static constexpr std::size_t kOtherBytes = 2048, kMostBytes = 227 * 1024 - kOtherBytes;

  // Bytes are of a row of x. Requires fits().
  DirectNormRoom(std::size_t hidden, std::size_t x_bytes, int ranks)
      : residual_bytes_(static_cast<std::uint32_t>(hidden * sizeof(float))),
        x_bytes_(static_cast<std::uint32_t>(x_bytes)) {
    const std::size_t row = of_a_row(hidden, x_bytes, ranks), of_all = static_cast<std::size_t>(ranks);
    const bool two = kMostGroups * row <= kMostBytes && kMostGroups * of_all <= kMostShares;
    groups_ = two ? kMostGroups : 1;
    const auto of_groups = [&](std::size_t rows) { return rows / groups_ * groups_; };
    residuals_ = static_cast<std::uint32_t>(of_groups(std::min<std::size_t>(kMostBytes / row, kMostResiduals)));
    const std::size_t left = kMostBytes - std::size_t{residuals_} * residual_bytes_;
    shares_ = static_cast<std::uint32_t>(of_groups(std::min(left / (of_all * x_bytes), kMostShares / of_all)) * of_all);
  }

  // y is written over x. TMA copies multiples of 16 bytes.
  static constexpr bool fits(std::size_t hidden, std::size_t x_bytes, std::size_t y_bytes, int ranks) {
    return x_bytes % 16 == 0 && y_bytes % 16 == 0 && y_bytes <= x_bytes &&
           static_cast<std::uint32_t>(ranks) <= kMostShares && of_a_row(hidden, x_bytes, ranks) <= kMostBytes;
  }

  HEDDLE_HOST_DEVICE std::uint32_t bytes() const { return share(shares_); }
  HEDDLE_HOST_DEVICE std::uint32_t groups() const { return groups_; }
  HEDDLE_HOST_DEVICE std::uint32_t residuals() const { return residuals_; }  // slots
  HEDDLE_HOST_DEVICE std::uint32_t shares() const { return shares_; }        // likewise, a multiple of the ranks
  HEDDLE_HOST_DEVICE std::uint32_t residual_bytes() const { return residual_bytes_; }
  // Byte offsets.
  HEDDLE_HOST_DEVICE std::uint32_t residual(std::uint32_t slot) const { return slot * residual_bytes_; }
  HEDDLE_HOST_DEVICE std::uint32_t share(std::uint32_t slot) const { return residual(residuals_) + slot * x_bytes_; }

 private:
  static constexpr std::size_t of_a_row(std::size_t hidden, std::size_t x_bytes, int ranks) {
    return hidden * sizeof(float) + static_cast<std::size_t>(ranks) * x_bytes;
  }

  std::uint32_t residual_bytes_, x_bytes_, groups_ = 1, residuals_ = 0, shares_ = 0;
};

}  // namespace heddle
