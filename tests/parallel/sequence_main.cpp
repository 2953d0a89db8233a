// heddle_sequence_cases: every strategy on ranks that are processes, as `heddle launch` starts them. Each rank holds its
// own tokens' output to float64, and prints a line and returns 1 where one is off.
//
//   heddle_sequence_cases FABRIC MACHINES RANKS_PER_MACHINE
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "fabric/run_ranks.h"
#include "parallel/sequence_ranks.h"

namespace heddle {
namespace {

// Three layers of each strategy that fits; returns how many were off on this rank.
int run_cases(Fabric& fabric, Stream& stream, const Placement& placement) {
  require(fabric.size() == placement.size(), "{} ranks for {} machines of {}", fabric.size(), placement.machines,
          placement.ranks_per_machine);
  SequenceCase of{placement, 4, 32, {}};
  for (int rank = 0; rank < placement.size(); ++rank) of.tokens.push_back(7 + 5 * rank % 11);
  int off = 0;
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    if (!why_not(strategy, placement, of.num_heads).empty()) continue;
    const SequenceMesh mesh = make_sequence_mesh(strategy, placement, of.num_heads);
    SequenceAttention layer(fabric, ranks_from(0, placement.size()), strategy, mesh, shape_of(of));
    for (unsigned seed = 1; seed <= 3; ++seed) {
      const WholeAttention attention = whole(of, 10 * seed);
      RankOperands operands(of, attention, fabric.rank());
      operands.attend(layer, stream);
      layer.synchronize(stream);
      std::vector<float> y(attention.q.size());
      operands.put_output(y);
      const std::string miss = first_miss(attention, y, operands.first(), operands.count());
      if (miss.empty()) continue;
      ++off;
      std::fprintf(stderr, "rank %d, %s: %s\n", fabric.rank(), name_of(strategy).data(), miss.c_str());
    }
  }
  return off;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  using namespace heddle;
  if (argc != 4) return 2;
  try {
    const Placement placement{std::atoi(argv[2]), std::atoi(argv[3])};
    std::atomic<int> off = 0;
    run_ranks(argv[1], placement.size(), {.heap_bytes = std::size_t{16} << 20, .deadline = std::chrono::seconds(60)},
              [&](Fabric& fabric, Stream& stream) { off += run_cases(fabric, stream, placement); });
    return off == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
