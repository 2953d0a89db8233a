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
#include <string>
#include <utility>

#include "base/error.h"
#include "fabric/run_ranks.h"
#include "parallel/sequence_ranks.h"

namespace heddle {
namespace {

int run_cases(Fabric& inner, Stream& stream, const Placement& placement, int late_layers) {
  require(inner.size() == placement.size(), "{} ranks for {} machines of {}", inner.size(), placement.machines,
          placement.ranks_per_machine);
  const bool on_gpu = inner.device().kind == DeviceKind::cuda;
  if (on_gpu) require(late_layers == 0, "only streams of the CPU can be late");
  LateFabric late(inner, static_cast<unsigned>(inner.rank()) + 1);
  SequenceCase of{.placement = placement, .num_heads = 4, .head_dim = 32, .tokens = {}};
  if (on_gpu) of.dtype = DType::bfloat16;
  for (int rank = 0; rank < placement.size(); ++rank) of.tokens.push_back(7 + 5 * rank % 11);
  int off = 0;
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    if (!why_not(strategy, placement, of.num_heads).empty()) continue;
    for (const auto& [fabric, layers] : {std::pair<Fabric*, int>{&inner, 4}, {&late, late_layers}}) {
      if (layers == 0) continue;
      const std::string why = run_layers(*fabric, stream, strategy, of, layers);
      if (why.empty()) continue;
      ++off;
      std::fprintf(stderr, "rank %d, %s: %s\n", inner.rank(), name_of(strategy).data(), why.c_str());
    }
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
