// Cuts a buffer into one piece per rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/packet.cuh"

namespace heddle {

// Pieces of whole packets, as even as possible; the very last packet may be partial. Piece p is bytes [begin(p),
// end(p)).
struct EvenPieces {
  // Divides once, in 32 bits below 64 GiB: on a GPU a 64-bit division takes longer than a packet.
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
  std::size_t larger;  // the number of leading pieces that have one packet more
};

}  // namespace heddle
