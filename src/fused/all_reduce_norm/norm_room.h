// How a block of the bulk form of pipelined calls (bulk_norm.cuh) divides its shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "fused/all_reduce_norm/norm_chunks.h"

namespace heddle {

// Constructed on the host; trivially copyable. In this order: the weight, in float32; a ring of rows that come in from every
// rank; rows that have been normalised, one for each group of warps; two rings of chunks on their way through, one to the
// owners of rows and one to y.
class NormRoom {
 public:
  static constexpr std::uint32_t kGroups = 2, kThroughSlots = 3, kMostShareSlots = 16, kFewestShareSlots = 2;
  // Of a block of Hopper, less what barriers and sums take.
  static constexpr std::size_t kMostBytes = 227 * 1024 - 1024;

  // Bytes are of a row; chunks have chunk_rows rows. Requires fits().
  NormRoom(std::size_t hidden, std::size_t x_bytes, std::size_t y_bytes, std::size_t chunk_rows)
      : x_bytes_(static_cast<std::uint32_t>(x_bytes)),
        y_bytes_(static_cast<std::uint32_t>(y_bytes)),
        shares_(static_cast<std::uint32_t>(hidden * sizeof(float))),
        share_slots_(slots_of(hidden, x_bytes, y_bytes, chunk_rows)),
        normed_(shares_ + share_slots_ * x_bytes_),
        push_(normed_ + kGroups * y_bytes_),
        copy_(push_ + kThroughSlots * static_cast<std::uint32_t>(chunk_rows * x_bytes)),
        bytes_(copy_ + kThroughSlots * static_cast<std::uint32_t>(chunk_rows * y_bytes)) {}

  static constexpr bool fits(std::size_t hidden, std::size_t x_bytes, std::size_t y_bytes, std::size_t chunk_rows) {
    const std::size_t larger = x_bytes > y_bytes ? x_bytes : y_bytes;
    return x_bytes % 16 == 0 && y_bytes % 16 == 0 && chunk_rows * larger <= NormChunks::kMostChunkBytes &&
           others(hidden, x_bytes, y_bytes, chunk_rows) + kFewestShareSlots * x_bytes <= kMostBytes;
  }

  HEDDLE_HOST_DEVICE std::uint32_t bytes() const { return bytes_; }
  HEDDLE_HOST_DEVICE std::uint32_t share_slots() const { return share_slots_; }
  // Byte offsets.
  HEDDLE_HOST_DEVICE std::uint32_t share(std::uint32_t slot) const { return shares_ + slot * x_bytes_; }
  HEDDLE_HOST_DEVICE std::uint32_t normed(std::uint32_t group) const { return normed_ + group * y_bytes_; }
  HEDDLE_HOST_DEVICE std::uint32_t push(std::uint32_t slot) const {
    return push_ + slot * ((copy_ - push_) / kThroughSlots);
  }
  HEDDLE_HOST_DEVICE std::uint32_t copy(std::uint32_t slot) const {
    return copy_ + slot * ((bytes_ - copy_) / kThroughSlots);
  }

 private:
  static constexpr std::size_t others(std::size_t hidden, std::size_t x_bytes, std::size_t y_bytes,
                                      std::size_t chunk_rows) {
    return hidden * sizeof(float) + kGroups * y_bytes + kThroughSlots * chunk_rows * (x_bytes + y_bytes);
  }
  static constexpr std::uint32_t slots_of(std::size_t hidden, std::size_t x_bytes, std::size_t y_bytes,
                                          std::size_t chunk_rows) {
    const std::size_t slots = (kMostBytes - others(hidden, x_bytes, y_bytes, chunk_rows)) / x_bytes;
    return static_cast<std::uint32_t>(slots < kMostShareSlots ? slots : kMostShareSlots);
  }

  std::uint32_t x_bytes_, y_bytes_;
  std::uint32_t shares_, share_slots_, normed_, push_, copy_, bytes_;
};

}  // namespace heddle
