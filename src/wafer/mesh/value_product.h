// The arithmetic of all places of a row at once: one vector instruction applies a core's operation to element (r, c) of
// many places' tiles (structure of arrays across cores).
//
// Element (r, c) of a row of `places` tiles is contiguous over the places; elements are `pitch` floats apart.
#pragma once

#include <cstdint>

namespace heddle::mesh {

// Floats of one element over a row of places: a multiple of the widest register, so that loops have no tail. Values
// beyond the places are computed and never used.
constexpr std::int64_t value_pitch(int places) {
  return (static_cast<std::int64_t>(places) + 15) / 16 * 16;
}

struct TileProduct {
  const float* a =
      nullptr;  // [m, k], element (m, k) at (m * this->k + k) * a_pitch; may begin anywhere in a wider array
  const float* b = nullptr;  // element (k, n) at k * b_step_k + n * b_step_n; covers transposed b
  float* c = nullptr;        // [m, n], element (m, n) at (m * this->n + n) * c_pitch
  std::int64_t a_pitch = 0, b_step_k = 0, b_step_n = 0, c_pitch = 0;
  int m = 0, k = 0, n = 0;
  int places = 0;
};

// c += a b at every place of the row. Each sum runs over k upwards, with one rounding per product where the machine has
// fused multiply-add, two otherwise. Reads and writes value_pitch(places) floats of each element.
void add_tile_product(const TileProduct& product);

}  // namespace heddle::mesh
