// A buffer of bytes cut into one piece a rank.
#pragma once

#include <cstddef>

#include "collectives/packet.cuh"

namespace heddle {

// Whole packets as even as they go, the last of all perhaps not full: piece p is bytes [begin(p), end(p)).
struct EvenPieces {
  std::size_t bytes;
  int ranks;

  HEDDLE_HOST_DEVICE std::size_t first_packet_of(int p) const {
    const std::size_t packets = packets_of(bytes), n = static_cast<std::size_t>(ranks), i = static_cast<std::size_t>(p);
    return packets / n * i + (i < packets % n ? i : packets % n);
  }
  HEDDLE_HOST_DEVICE std::size_t packets(int p) const { return first_packet_of(p + 1) - first_packet_of(p); }
  HEDDLE_HOST_DEVICE std::size_t most_packets() const { return packets(0); }
  HEDDLE_HOST_DEVICE std::size_t begin(int p) const {
    const std::size_t at = first_packet_of(p) * kPacketBytes;
    return at < bytes ? at : bytes;
  }
  HEDDLE_HOST_DEVICE std::size_t end(int p) const { return begin(p + 1); }
  HEDDLE_HOST_DEVICE std::size_t size(int p) const { return end(p) - begin(p); }
};

}  // namespace heddle
