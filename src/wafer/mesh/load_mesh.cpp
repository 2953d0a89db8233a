#include "wafer/mesh/load_mesh.h"

#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace heddle::mesh {

LoadMesh::LoadMesh(const PlmrDevice& device, WaferMesh cores, int most_steps)
    : grid_(Grid::of_cores(cores)),
      budget_(device, grid_),
      most_steps_(most_steps),
      hop_cycles_(device.alpha_cycles.value),
      ramp_cycles_(device.ramp_cycles.value),
      stage_cycles_(device.beta_cycles.value),
      link_bytes_(device.link_bytes_per_cycle.value) {
  require(most_steps > 0, "{} steps", most_steps);
  for (std::vector<Flow>& flows : flows_) flows.resize(static_cast<std::size_t>(cores.width) * cores.height);
  begun_.resize(flows_[0].size());
}

std::int64_t LoadMesh::words_of(Tile tile) const {
  return static_cast<std::int64_t>(std::ceil(kValueBytes * tile.rows * tile.columns / link_bytes_));
}

void LoadMesh::begin_transfer() {
  for (const Axis axis : {Axis::x, Axis::y}) budget_.take_exchange(axis);
  for (std::vector<Flow>& flows : flows_) std::ranges::fill(flows, Flow{});
  std::ranges::fill(begun_, 0);
  longest_ = longest_without_stages_ = 0;
}

void LoadMesh::note_latency(const TileMove& move, Access access) {
  const int width = grid_.cores.width;
  const int hops = std::abs(move.from % width - move.to % width) + std::abs(move.from / width - move.to / width);
  const int ways = access == Access::load ? 2 : 1;
  const double way = ramp_cycles_ + hops * hop_cycles_, words = static_cast<double>(words_of(move.source));
  longest_ = std::max(longest_, ways * (way + hops * stage_cycles_) + words);
  longest_without_stages_ = std::max(longest_without_stages_, ways * way + words);
  most_hops_ = std::max(most_hops_, ways * hops);
}

void LoadMesh::end_transfer() {
  const auto [width, height] = grid_.cores;
  std::int64_t busiest = 0;
  std::vector<Flow> open[4];  // at the current row: by column, for the directions along y
  for (std::vector<Flow>& flows : open) flows.resize(static_cast<std::size_t>(width));
  for (int y = 0; y < height; ++y) {
    const auto row = static_cast<std::size_t>(y) * width;
    Flow right{}, left{};
    for (std::size_t x = 0; x < static_cast<std::size_t>(width); ++x) {
      // A path to the right, or down, enters a core over the link before it; the others over the link behind it.
      int paths = begun_[row + x] + right.paths + open[kDown][x].paths;
      for (const auto& [direction, flow] :
           {std::pair{kRight, &right}, {kLeft, &left}, {kDown, &open[kDown][x]}, {kUp, &open[kUp][x]}}) {
        const Flow& change = flows_[direction][row + x];
        flow->words += change.words;
        flow->paths += change.paths;
        busiest = std::max(busiest, flow->words);
      }
      paths += left.paths + open[kUp][x].paths;
      most_paths_ = std::max(most_paths_, paths);
    }
  }
  most_words_ = std::max(most_words_, busiest);
  const auto words = static_cast<double>(busiest);
  transfer_ += repeated_ * (longest_ + words);
  hops_and_words_ += repeated_ * (longest_without_stages_ + words);
  least_ += repeated_ * std::max(longest_, words);
}

}  // namespace heddle::mesh
