// heddle_sequence_cases: every strategy on ranks that are processes, as `heddle launch` starts them. Each rank holds its
// own tokens' output to float64, and prints a line and returns 1 where one is off.
//
//   heddle_sequence_cases FABRIC MACHINES RANKS_PER_MACHINE [LAYERS]
//
// With LAYERS, so many layers of each strategy follow while every transfer is late at random; each must repeat the bits of
// the first.
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

// Returns how many layers were off on this rank.
int run_strategy(Fabric& fabric, Stream& stream, SequenceStrategy strategy, const SequenceCase& of, int layers) {
  const SequenceMesh mesh = make_sequence_mesh(strategy, of.placement, of.num_heads);
  SequenceAttention layer(fabric, ranks_from(0, of.placement.size()), strategy, mesh, shape_of(of));
  const WholeAttention attentions[2] = {whole(of, 1), whole(of, 7)};
  RankOperands operands[2] = {{of, attentions[0], fabric.rank()}, {of, attentions[1], fabric.rank()}};
  std::vector<std::byte> first[2];
  int off = 0;
  for (int i = 0; i < layers; ++i) {
    RankOperands& now = operands[i % 2];
    now.attend(layer, stream);
    layer.synchronize(stream);
    if (i >= 2) {
      off += now.output() != first[i % 2];
      continue;
    }
    first[i] = now.output();
    std::vector<float> y(attentions[i].q.size());
    now.put_output(y);
    const std::string miss = first_miss(attentions[i], y, now.first(), now.count());
    if (miss.empty()) continue;
    ++off;
    std::fprintf(stderr, "rank %d, %s: %s\n", fabric.rank(), name_of(strategy).data(), miss.c_str());
  }
  if (off > 0) std::fprintf(stderr, "rank %d, %s: %d layers are off\n", fabric.rank(), name_of(strategy).data(), off);
  return off;
}

int run_cases(Fabric& inner, Stream& stream, const Placement& placement, int late_layers) {
  require(inner.size() == placement.size(), "{} ranks for {} machines of {}", inner.size(), placement.machines,
          placement.ranks_per_machine);
  LateFabric late(inner, static_cast<unsigned>(inner.rank()) + 1);
  SequenceCase of{placement, 4, 32, {}};
  for (int rank = 0; rank < placement.size(); ++rank) of.tokens.push_back(7 + 5 * rank % 11);
  int off = 0;
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    if (!why_not(strategy, placement, of.num_heads).empty()) continue;
    off += run_strategy(inner, stream, strategy, of, 4);
    if (late_layers > 0) off += run_strategy(late, stream, strategy, of, late_layers);
  }
  return off;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  using namespace heddle;
  if (argc != 4 && argc != 5) return 2;
  try {
    const Placement placement{std::atoi(argv[2]), std::atoi(argv[3])};
    const int late_layers = argc == 5 ? std::atoi(argv[4]) : 0;
    std::atomic<int> off = 0;
    run_ranks(argv[1], placement.size(), {.heap_bytes = std::size_t{16} << 20, .deadline = std::chrono::seconds(60)},
              [&](Fabric& fabric, Stream& stream) { off += run_cases(fabric, stream, placement, late_layers); });
    return off == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
