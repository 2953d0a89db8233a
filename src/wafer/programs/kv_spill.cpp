#include "wafer/programs/kv_spill.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {

using mesh::Axis;

KvSpill::KvSpill(const mesh::Grid& grid, CoreRectangle idle) : grid_(grid), idle_(idle) {
  require(idle.height > 0 && idle.width >= grid.cores.width && idle.y >= grid.cores.height,
          "idle cores of {} x {} from row {} for a mesh of {} x {}", idle.width, idle.height, idle.y, grid.cores.width,
          grid.cores.height);
  position_.resize(static_cast<std::size_t>(grid.cores.height));
  for (int p = 0; p < grid.cores.height; ++p) position_[static_cast<std::size_t>(grid.ring_core(Axis::y, p))] = p;
}

int KvSpill::first_place(int core_y) const {
  return position_[static_cast<std::size_t>(core_y)] * places_a_core();
}

// In the idle row of that row of cores.
std::size_t KvSpill::offset(int core_y, int place, int which, int r, int c) const {
  const std::int64_t slot = core_y / idle_.height;
  const std::int64_t tile = (slot * places_a_core() + place) * 2 + which;
  return static_cast<std::size_t>(((tile * tile_.rows + r) * tile_.columns + c) * grid_.columns);
}

void KvSpill::send(mesh::TimedMesh& mesh, mesh::Tile k, mesh::Tile v) {
  require(k.rows == v.rows && k.columns == v.columns, "keys and values of different shapes");
  tile_ = k;
  const int height = grid_.cores.height, slots = ceil_div(height, idle_.height);
  const double values = 2.0 * k.rows * k.columns * grid_.tiles_a_core();
  const double bytes = kValueBytes * values * slots * ++held_layers_;
  if (const auto& device = mesh.device(); device && bytes > device->sram_bytes.value)
    throw_error<InputError>(
        "core (0, {}), prefill: the keys and values of {} layer(s) of {} row(s) of cores need {:.0f} bytes, but a core "
        "of "
        "{} has {:.0f}: {:.0f} too few",
        idle_.y, held_layers_, slots, bytes, device->name, device->sram_bytes.value, bytes - device->sram_bytes.value);
  most_bytes_ = std::max(most_bytes_, bytes);
  rows_.assign(static_cast<std::size_t>(idle_.height),
               std::vector<float>(offset((slots - 1) * idle_.height, places_a_core(), 0, 0, 0)));
  std::vector<mesh::RelayMessage> messages;
  messages.reserve(static_cast<std::size_t>(height));
  for (int y = 0; y < height; ++y) messages.push_back({{0, y}, {0, idle_.idle_row(y)}, kValueBytes * values});
  mesh.relay("KV spill", messages, [&](std::size_t n) {
    const auto core_y = static_cast<int>(n);
    const auto row = static_cast<std::size_t>(messages[n].to.y - idle_.y);
    for (int place = 0; place < places_a_core(); ++place)
      for (int which = 0; which < 2; ++which)
        for (int r = 0; r < k.rows; ++r)
          for (int c = 0; c < k.columns; ++c)
            std::copy_n(mesh.at(which == 0 ? k : v, first_place(core_y) + place, r, c), grid_.columns,
                        rows_[row].data() + offset(core_y, place, which, r, c));
  });
}

std::vector<float> KvSpill::read(int which, std::int64_t tokens) const {
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(tokens * tile_.columns * grid_.columns));
  for (std::int64_t token = 0; token < tokens; ++token) {
    const int place = static_cast<int>(token / tile_.rows), r = static_cast<int>(token % tile_.rows);
    const int core_y = grid_.ring_core(Axis::y, grid_.ring_position(Axis::y, place));
    for (int c = 0; c < tile_.columns; ++c) {
      const float* row = rows_[static_cast<std::size_t>(idle_.idle_row(core_y) - idle_.y)].data() +
                         offset(core_y, place % places_a_core(), which, r, c);
      values.insert(values.end(), row, row + grid_.columns);
    }
  }
  return values;
}

}  // namespace heddle
