// Where the ranks of a run are, as they find it: whether machines are machines, or emulated.
#pragma once

#include <cstdint>
#include <string>

#include "base/stream.h"
#include "fabric/fabric.h"

namespace heddle {

enum class RankHosts : std::uint8_t {
  one_host,    // a machine's threads or processes; where they stand for several machines, these are emulated
  namespaces,  // network namespaces of one host, each with its own network interfaces
  machines
};

// "one host", "namespaces", "machines".
std::string name_of(RankHosts hosts);

// Collective: gather_words() of two.
RankHosts find_rank_hosts(Fabric& fabric, Stream& stream);

}  // namespace heddle
