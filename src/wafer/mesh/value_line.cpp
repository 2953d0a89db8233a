#include "wafer/mesh/value_line.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/k_tree.h"
#include "schedule/make_schedule.h"

namespace heddle::mesh {
namespace {

LineReduce adds_of(const schedule::KTree& tree) {
  LineReduce line{.root = tree.root(), .adds = {}};
  for (int step = 0; step + 1 < tree.steps(); ++step)  // the last one is the multicast
    for (int place = 0; place < tree.size; ++place)
      if (const auto transfer = tree.at(place, step); transfer.from >= 0) line.adds.push_back({place, transfer.from});
  return line;
}

void combine(float* to, const float* from, std::int64_t count, Reduction reduction) {
  if (reduction == Reduction::sum)
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
  else
    for (std::int64_t i = 0; i < count; ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

LineReduce line_reduce(int places, const AllReduceOptions& options, int chunk) {
  require(places >= 1 && options.phases >= 1 && chunk >= 0 && chunk < places,
          "all-reduce: {} places, {} phases, chunk {}", places, options.phases, chunk);
  if (options.method == WaferAllReduce::k_tree) return adds_of(make_schedule<schedule::KTree>(places, options.phases));
  const int first = options.method == WaferAllReduce::ring ? chunk + 1 : 0;
  LineReduce line{.root = (first + places - 1) % places, .adds = {}};
  for (int step = 1; step < places; ++step) line.adds.push_back({(first + step) % places, (first + step - 1) % places});
  return line;
}

LineReduce chain_to(int root, int places) {
  LineReduce line{.root = root, .adds = {}};
  for (int place = 1; place <= root; ++place) line.adds.push_back({place, place - 1});
  for (int place = places - 2; place >= root; --place) line.adds.push_back({place, place + 1});
  return line;
}

void reduce_line(const LineReduce& line, float* values, std::int64_t stride, std::int64_t count, Reduction reduction) {
  for (const auto [to, from] : line.adds) combine(values + to * stride, values + from * stride, count, reduction);
}

}  // namespace heddle::mesh
