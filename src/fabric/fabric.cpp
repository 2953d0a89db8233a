#include "fabric/fabric.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "fabric/call_checks.h"

namespace heddle {
namespace {

Ranks world_of(const Fabric& fabric) {
  Ranks ranks(static_cast<std::size_t>(fabric.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::string_view name_of(Capability capability) {
  switch (capability) {
    case Capability::peer_addresses:
      return "peer addresses";
    case Capability::device_initiated:
      return "transfers from inside kernels";
    case Capability::several_machines:
      return "ranks on several machines";
    case Capability::vendor_collectives:
      return "NCCL's collectives";
  }
  return "?";
}

Peers Fabric::peers() const {
  return peers(world_of(*this));
}

Ranks Fabric::addressable() const {
  return has(Capability::peer_addresses) ? world_of(*this) : Ranks{};
}

void Fabric::begin_put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "begin_put");
  require_symmetric(*this, destination, bytes, "begin_put");
  require_local(source, bytes, "begin_put");
}

void Fabric::begin_get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "begin_get");
  require_symmetric(*this, source, bytes, "begin_get");
  require_local(destination, bytes, "begin_get");
}

void Fabric::signal_next(Stream& stream, int peer, Semaphore* semaphore) {
  signal_add(stream, peer, &semaphore->arrived, 1);
}

void Fabric::barrier(Stream& stream) {
  barrier(stream, world_of(*this));
}

void require_capability(const Fabric& fabric, Capability capability, std::string_view who) {
  require(fabric.has(capability), "{} needs a fabric with {}; {} has none", who, name_of(capability), fabric.name());
}

void require_team(std::span<const int> team, int world_size, int rank, std::string_view who) {
  require(!team.empty(), "{}: a team needs at least one rank", who);
  bool found = false;
  for (std::size_t i = 0; i < team.size(); ++i) {
    require(team[i] >= 0 && team[i] < world_size, "{}: rank {} is not in a world of {}", who, team[i], world_size);
    require(std::find(team.begin(), team.begin() + static_cast<std::ptrdiff_t>(i), team[i]) ==
                team.begin() + static_cast<std::ptrdiff_t>(i),
            "{}: rank {} is in the team twice", who, team[i]);
    found = found || team[i] == rank;
  }
  require(found, "{}: rank {} is not in the team that it calls for", who, rank);
}

}  // namespace heddle
