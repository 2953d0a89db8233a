// The values that the words of the discrete-event mesh carry (event_mesh.h): every place's tiles in float32, in both
// buffers of a double-buffered tile. An operation chooses its buffer when the program is built; it reads the values
// when the word leaves or the core computes. A core that overwrites a buffer too early therefore produces wrong
// results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "wafer/mesh/mesh.h"

namespace heddle::mesh {

// The values of a message, numbered in the order of its words. `own` is what the sender adds to the values of the
// message's parents; null: nothing. `sent` is called as a value leaves. `arrive` is called at each core that takes a
// word, with the core's index in the path; null: only other messages use this one. Indices that pad a tile to whole
// words may be passed to all of them: these values are zero and are not stored.
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
  // Element (r, c) of place (i, j), as the operations so far leave it.
  float& at(Tile tile, int i, int j, int r, int c);

  // The buffer of each place's tile at this moment.
  using Buffers = std::shared_ptr<const std::vector<std::uint8_t>>;
  Buffers current(Tile tile) const { return tiles_[index(tile)].current; }
  // From now on the places of a line across `axis`, or all places, use their other buffer.
  void turn(Tile tile, Axis axis, int across);
  void turn(Tile tile);

  // Element of the tile at a place, given by its position along `axis` and across it: in the buffer that `in` names, or
  // in the other one.
  float& element(Tile tile, const Buffers& in, Axis axis, int along, int across, int element);
  float& other_element(Tile tile, const Buffers& in, Axis axis, int along, int across, int element);

  // Maps value number `value` of consecutive tiles, each padded to whole words, to tile and element; exists is false
  // for padding.
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
