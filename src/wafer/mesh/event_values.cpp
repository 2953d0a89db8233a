#include "wafer/mesh/event_values.h"

#include "base/error.h"

namespace heddle::mesh {

void EventValues::allocate(Tile tile) {
  if (tiles_.size() <= index(tile)) tiles_.resize(index(tile) + 1);
  const auto places = static_cast<std::size_t>(grid_.columns) * static_cast<std::size_t>(grid_.rows);
  Stored& stored = tiles_[index(tile)];
  stored = {.rows = tile.rows, .columns = tile.columns};
  for (std::vector<float>& buffer : stored.values)
    buffer.assign(places * static_cast<std::size_t>(tile.rows) * static_cast<std::size_t>(tile.columns), 0);
  stored.current = std::make_shared<std::vector<std::uint8_t>>(places);
}

float& EventValues::at(Tile tile, int i, int j, int r, int c) {
  return element(tile, current(tile), Axis::x, j, i, r * tile.columns + c);
}

void EventValues::turn(Tile tile, Axis axis, int across) {
  auto turned = std::make_shared<std::vector<std::uint8_t>>(*tiles_[index(tile)].current);
  for (int along = 0; along < grid_.places(axis); ++along) (*turned)[place(axis, along, across)] ^= 1;
  tiles_[index(tile)].current = std::move(turned);
}

void EventValues::turn(Tile tile) {
  auto turned = std::make_shared<std::vector<std::uint8_t>>(*tiles_[index(tile)].current);
  for (std::uint8_t& buffer : *turned) buffer ^= 1;
  tiles_[index(tile)].current = std::move(turned);
}

float& EventValues::element(Tile tile, const Buffers& in, Axis axis, int along, int across, int element) {
  const std::size_t at_place = place(axis, along, across);
  return cell(tile, (*in)[at_place], at_place, element);
}

float& EventValues::other_element(Tile tile, const Buffers& in, Axis axis, int along, int across, int element) {
  const std::size_t at_place = place(axis, along, across);
  return cell(tile, (*in)[at_place] ^ 1, at_place, element);
}

EventValues::Numbered EventValues::numbered(Tile tile, int values_a_word, int value) {
  const int elements = tile.rows * tile.columns;
  const int padded = (elements + values_a_word - 1) / values_a_word * values_a_word;
  return {.tile = value / padded, .element = value % padded, .exists = value % padded < elements};
}

std::size_t EventValues::place(Axis axis, int along, int across) const {
  const int i = axis == Axis::x ? across : along, j = axis == Axis::x ? along : across;
  require(0 <= i && i < grid_.rows && 0 <= j && j < grid_.columns, "no place ({}, {})", i, j);
  return static_cast<std::size_t>(i) * static_cast<std::size_t>(grid_.columns) + static_cast<std::size_t>(j);
}

// [rows of the grid][element][columns of the grid]
float& EventValues::cell(Tile tile, std::uint8_t buffer, std::size_t place, int element) {
  Stored& stored = tiles_[index(tile)];
  const auto columns = static_cast<std::size_t>(grid_.columns);
  const auto elements = static_cast<std::size_t>(stored.rows) * static_cast<std::size_t>(stored.columns);
  return stored
      .values[buffer][(place / columns * elements + static_cast<std::size_t>(element)) * columns + place % columns];
}

}  // namespace heddle::mesh
