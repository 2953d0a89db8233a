// Executes messages between any two cores of a device: along x first, then along y, relayed in software by each core on
// the way (tile_move.h). A message needs alpha cycles a link and beta in each core that sends it, its ramp once. A link
// carries a word a cycle and direction, message by message, in the order in which their first words reached it; so the
// words of a message follow each other without gaps. EventMesh, which moves each word, takes the same time, within what
// simultaneous arrivals leave open (tests/wafer/mesh/relay_test.cpp). Only links that words pass are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_regions.h"

namespace heddle::mesh {

struct RelayMessage {
  DeviceCore from, to;
  double bytes = 0;
};

// Links that the messages pass, all together: the work of executing them.
std::int64_t hops_of(std::span<const RelayMessage> messages);

// All messages begin at once. Calls arrive(n) when the last word of messages[n] is there, in the order of time. Returns
// the cycle of the last arrival; 0 where nothing has to move.
double run_relays(const PlmrDevice& device, std::span<const RelayMessage> messages,
                  FunctionRef<void(std::size_t)> arrive);

}  // namespace heddle::mesh
