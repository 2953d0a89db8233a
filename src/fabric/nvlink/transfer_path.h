// Which hardware carries out a put or get.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked.h"

namespace heddle {

enum class TransferPath : std::uint8_t { none, kernel, copy_engine };

// A copy engine fills the link without using SMs but takes microseconds to start. A kernel starts at once, but moves
// single bytes if source and destination are not aligned alike.
constexpr TransferPath transfer_path(std::size_t bytes, std::uintptr_t destination, std::uintptr_t source,
                                     std::size_t copy_engine_bytes) {
  constexpr std::size_t kSlowestWord = 16;  // a kernel that moves bytes is that much slower than one that moves words
  if (bytes == 0) return TransferPath::none;
  if (bytes == 8) return TransferPath::kernel;  // may be a flag, which must be written atomically
  const bool by_words = (destination ^ source) % 4 == 0;
  return bytes >= (by_words ? copy_engine_bytes : copy_engine_bytes / kSlowestWord) ? TransferPath::copy_engine
                                                                                    : TransferPath::kernel;
}

// Blocks of a copy kernel: each copies some tens of kilobytes, and eight fill a link.
constexpr int copy_blocks(std::size_t bytes) {
  constexpr std::size_t kBytesEach = std::size_t{32} << 10;
  constexpr std::size_t kMost = 8;
  const std::size_t wanted = ceil_div(bytes, kBytesEach);
  return static_cast<int>(wanted < 1 ? 1 : wanted > kMost ? kMost : wanted);
}

}  // namespace heddle
