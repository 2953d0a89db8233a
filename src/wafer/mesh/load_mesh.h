// A mesh that counts the words on each link. It runs programs of TileMoves on meshes of any size, where the event mesh
// would take days, and predicts what that measures: a transfer takes as long as its busiest link has words to carry, and
// then its longest path. It cannot take less than the longer of the two. Work and transfers alternate: each begins when the last core is done with the one before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "wafer/mesh/core_budget.h"
#include "wafer/mesh/tile_move.h"

namespace heddle::mesh {

class LoadMesh {
 public:
  // Of a loop, at most `most_steps` steps are counted, evenly spaced, and stand for the others.
  LoadMesh(const PlmrDevice& device, WaferMesh cores, int most_steps);

  const Grid& grid() const { return grid_; }
  void phase(std::string_view name) { budget_.phase(name); }
  Tile allocate(std::string_view name, int rows, int columns, Buffers buffers) {
    return budget_.allocate(name, rows, columns, buffers);
  }
  void release(Tile tile) { budget_.release(tile); }

  template <class Body>
  void repeat(int steps, Body&& body) {
    const int counted = std::min(steps, most_steps_);
    const double before = repeated_;
    repeated_ *= 1.0 * steps / counted;
    for (int i = 0; i < counted; ++i) body(static_cast<int>(std::int64_t{i} * steps / counted));
    repeated_ = before;
  }

  // `work(core)` computes values, which this mesh has not.
  template <class Work>
  void work(double cycles, Work&&) {
    compute_ += repeated_ * cycles;
  }

  // move(n), for n from 0 to count - 1, is a TileMove; all begin at once.
  template <class Move>
  void transfer(std::int64_t count, Access access, Arrival, Move&& move) {
    begin_transfer();
    for (std::int64_t n = 0; n < count; ++n) add(move(n), access);
    end_transfer();
  }
  // The same of sends that for_moves(action) lists by action(TileMove).
  template <class ForMoves>
  void transfer_all(ForMoves&& for_moves) {
    begin_transfer();
    for_moves([&](const TileMove& move) { add(move, Access::send); });
    end_transfer();
  }

  double compute_cycles() const { return compute_; }
  double transfer_cycles() const { return transfer_; }
  // The same without the cost of a stage, which is fitted.
  double hops_and_words() const { return hops_and_words_; }
  // What the transfers take at least: of each, its busiest link's words or its longest path, whichever is more.
  double least_transfer_cycles() const { return least_; }
  const CoreBudget& budget() const { return budget_; }

  // Of the transfer with most of each: words on one link; paths that begin, end or pass at one core; hops of the longest
  // chain of messages (of a load, of its request and its reply).
  std::int64_t most_words() const { return most_words_; }
  int most_paths() const { return most_paths_; }
  int most_hops() const { return most_hops_; }

 private:
  enum Direction : std::uint8_t { kRight, kLeft, kDown, kUp };
  struct Flow {
    std::int64_t words = 0;
    std::int32_t paths = 0;
  };

  void add(const TileMove& move, Access access) {
    if (move.from == move.to) return;
    if (access == Access::load) add_path(move.to, move.from, 1);
    add_path(move.from, move.to, words_of(move.source));
    note_latency(move, access);
  }
  std::int64_t words_of(Tile tile) const;
  void begin_transfer();
  void end_transfer();
  // Counts a path at both of its ends: [begin, end) of the links of a line.
  void add_path(int from, int to, std::int64_t words) {
    const int width = grid_.cores.width;
    const int x0 = from % width, y0 = from / width, x1 = to % width, y1 = to / width, row = y0 * width;
    if (x0 != x1) change(x1 > x0 ? kRight : kLeft, row + std::min(x0, x1), row + std::max(x0, x1), words);
    if (y0 != y1) change(y1 > y0 ? kDown : kUp, std::min(y0, y1) * width + x1, std::max(y0, y1) * width + x1, words);
    ++begun_[static_cast<std::size_t>(from)];
  }
  void change(Direction direction, int first, int last, std::int64_t words) {
    std::vector<Flow>& flows = flows_[direction];
    Flow &begin = flows[static_cast<std::size_t>(first)], &end = flows[static_cast<std::size_t>(last)];
    begin.words += words;
    ++begin.paths;
    end.words -= words;
    --end.paths;
  }
  void note_latency(const TileMove& move, Access access);

  Grid grid_;
  CoreBudget budget_;
  int most_steps_;
  double hop_cycles_, ramp_cycles_, stage_cycles_, link_bytes_;
  double compute_ = 0, transfer_ = 0, hops_and_words_ = 0, least_ = 0, repeated_ = 1;
  std::vector<Flow> flows_[4];                       // by direction and link: how much more than the link before
  std::vector<std::int32_t> begun_;                  // paths that begin at a core
  double longest_ = 0, longest_without_stages_ = 0;  // of the current transfer
  std::int64_t most_words_ = 0;
  int most_paths_ = 0, most_hops_ = 0;
};

}  // namespace heddle::mesh
