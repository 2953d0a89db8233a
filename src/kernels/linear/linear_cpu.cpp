#include "kernels/linear/linear_cpu.h"

#include <algorithm>

#include "base/checked.h"
#include "kernels/linear/linear_tiles.h"

namespace heddle {
namespace {

// How many rows of W a thread takes at a time with many tokens: the number that minimizes the time of the slowest
// thread. That thread has the most pieces. Each piece costs `rows_to_begin` rows' time besides its own, to widen x or
// load it into the cache. Part of one piece is waited for where threads are not equally fast.
std::int64_t even_share(std::int64_t num_rows, std::int64_t multiple, std::int64_t rows_to_begin, int num_threads) {
  constexpr std::int64_t kMost = 256;
  constexpr std::int64_t kWaitedFor = 5;  // a fifth
  std::int64_t best = multiple, best_cost = 0;
  for (std::int64_t rows = multiple; rows <= kMost; rows += multiple) {
    const std::int64_t pieces = ceil_div(num_rows, rows);
    const std::int64_t rounds = ceil_div(pieces, std::int64_t{num_threads});
    const std::int64_t cost = kWaitedFor * rounds * (rows + rows_to_begin) + rows;
    if (best_cost != 0 && cost >= best_cost) continue;
    best = rows;
    best_cost = cost;
  }
  return best;
}

}  // namespace

// Few tokens are limited by memory bandwidth: the first pieces may be large and the last ones small, but each must be
// worth its scheduling and its packing of x.
ThreadPool::PieceSizes pieces_for(const LinearParams& params, LinearCpuLoops loops, int num_threads) {
  const bool on_tiles = loops == LinearCpuLoops::tiles;
  const std::int64_t num_rows = params.weight.out_features, multiple = on_tiles ? kRowsOnTiles : kRowsOfFew;
  const std::int64_t elements = params.weight.in_features * ((params.x.rows + 3) / 4);
  const std::int64_t least = round_up(std::max<std::int64_t>(1, (1 << 16) / elements), multiple);
  if (params.x.rows < kFewestTokensToPackRows) return {std::max(num_rows, least), least};
  return std::max(least, even_share(num_rows, on_tiles ? multiple : multiple / 2, on_tiles ? 64 : 4, num_threads));
}

}  // namespace heddle
