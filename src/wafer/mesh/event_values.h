// What the words of the discrete-event mesh carry (event_mesh.h): the values of every place's tiles, in float32, in the
// buffers between which its programs turn. Which buffer an operation finds a tile in is known when the operation is
// written down; what lies there, when its word leaves or its core computes. So a core that overwrote a buffer too early
// would be found out by its numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// The values of a message, numbered as its words come by. `own` is what its sender adds to what it passes on of its
// parents; none: nothing. `sent` is told what leaves, `arrive` at each core that takes a word, with its index in the
// path; none: a parent of others alone. All may be asked for values that pad a tile to whole words, which are zeros and
// arrive nowhere.
struct Payload {
  int values_a_word = 1;
  Reduction reduction = Reduction::sum;
  std::function<float(int value)> own;
  std::function<void(int value, float)> sent;
  std::function<void(int path_index, int value, float)> arrive;
};

class EventValues {
 public:
  explicit EventValues(const Grid& grid) : grid_(grid) {}

  void allocate(Tile tile);  // zeros
  // Where the operations so far leave it: element (r, c) of place (i, j).
  float& at(Tile tile, int i, int j, int r, int c);

  // Which buffer each place's tile is in, as of now.
  using Buffers = std::shared_ptr<const std::vector<std::uint8_t>>;
  Buffers current(Tile tile) const { return tiles_[index(tile)].current; }
  // The others of the places of a line across `axis`, or of all, from now on.
  void turn(Tile tile, Axis axis, int across);
  void turn(Tile tile);

  // Element of the tile at a place, by its places along `axis` and across it, in the buffer that `in` says, or in the
  // other.
  float& element(Tile tile, const Buffers& in, Axis axis, int along, int across, int element);
  float& other_element(Tile tile, const Buffers& in, Axis axis, int along, int across, int element);

  // Whether value `value` of tiles that lie one after the other, each in whole words, is one, and of which tile and
  // element.
  struct Numbered {
    int tile, element;
    bool exists;
  };
  static Numbered numbered(Tile tile, int values_a_word, int value);

 private:
  struct Stored {
    int rows = 0, columns = 0;
    std::vector<float> values[2];
    Buffers current;
  };
  static std::size_t index(Tile tile) { return static_cast<std::size_t>(tile.id); }
  std::size_t place(Axis axis, int along, int across) const;
  float& cell(Tile tile, std::uint8_t buffer, std::size_t place, int element);

  Grid grid_;
  std::vector<Stored> tiles_;
};

}  // namespace heddle::mesh
