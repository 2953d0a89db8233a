// Transfers between any two cores: along x first, then along y, relayed in software by each core on the way, since
// there are more paths than routes. EventMesh moves their words; LoadMesh counts them.
#pragma once

#include <cstdint>

#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// Core `to` gets the tile `source` of core `from` as its tile `into`, which has the same shape. Cores are numbered row
// by row.
struct TileMove {
  int from = 0;
  Tile source;
  int to = 0;
  Tile into;
};

// send: `from` knows what to send. load: `to` asks for it first, with a request of one word.
enum class Access : std::uint8_t { send, load };

enum class Arrival : std::uint8_t { replace, add };

}  // namespace heddle::mesh
