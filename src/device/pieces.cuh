// A buffer of bytes cut into one piece a rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/packet.cuh"

namespace heddle {

// Whole packets as even as they go, the last of all perhaps not full: piece p is bytes [begin(p), end(p)).
struct EvenPieces {
  // Divides once: a 64-bit division takes a GPU longer than a packet does, and nobody has 64 GiB.
  HEDDLE_HOST_DEVICE EvenPieces(std::size_t size_bytes, int ranks) : bytes(size_bytes) {
    const std::size_t packets = packets_of(bytes), n = static_cast<std::size_t>(ranks);
    each = packets <= UINT32_MAX ? static_cast<std::uint32_t>(packets) / static_cast<std::uint32_t>(n) : packets / n;
    larger = packets - each * n;
  }

  HEDDLE_HOST_DEVICE std::size_t first_packet_of(int p) const {
    const auto i = static_cast<std::size_t>(p);
    return each * i + (i < larger ? i : larger);
  }
  HEDDLE_HOST_DEVICE std::size_t packets(int p) const { return each + (static_cast<std::size_t>(p) < larger ? 1 : 0); }
  HEDDLE_HOST_DEVICE std::size_t most_packets() const { return packets(0); }
  HEDDLE_HOST_DEVICE std::size_t begin(int p) const {
    const std::size_t at = first_packet_of(p) * kPacketBytes;
    return at < bytes ? at : bytes;
  }
  HEDDLE_HOST_DEVICE std::size_t end(int p) const { return begin(p + 1); }
  HEDDLE_HOST_DEVICE std::size_t size(int p) const { return end(p) - begin(p); }

  std::size_t bytes;
  std::size_t each;    // packets
  std::size_t larger;  // so many pieces, the first ones, have one packet more
};

}  // namespace heddle
