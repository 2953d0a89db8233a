// heddle_sequence_cases: every strategy on ranks that are processes, as `heddle launch` starts them, or else threads. Each
// rank holds its own tokens' output to float64, and prints a line and returns 1 where one is off.
//
//   heddle_sequence_cases FABRIC MACHINESxRANKS... [--late LAYERS] [--deadline SECONDS]
//
// The placements come one after the other; of one that is smaller than the run, teams run beside each other. Layers have
// as many heads as ranks, so that Ulysses takes all ranks, and a fraction of that, so that a ring goes over the rest. With
// --late, so many layers follow of Ulysses with the many heads, and of each other strategy with such a ring, while every
// transfer is late at random, and each must repeat the bits of the first. Says "begun" when all ranks have come together.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fabric/run_ranks.h"
#include "parallel/sequence_ranks.h"

namespace heddle {
namespace {

struct CasesOptions {
  std::string fabric;
  std::vector<Placement> placements;
  int late_layers = 0;
  int deadline_seconds = 60;
};

int number_of(const char* text) {
  const int number = std::atoi(text);
  require(number > 0, "\"{}\" is no number above 0", text);
  return number;
}

CasesOptions options_of(int argc, char** argv) {
  require(argc >= 3, "usage: heddle_sequence_cases FABRIC MACHINESxRANKS... [--late LAYERS] [--deadline SECONDS]");
  CasesOptions options{.fabric = argv[1], .placements = {}};
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--late" && i + 1 < argc) {
      options.late_layers = number_of(argv[++i]);
    } else if (word == "--deadline" && i + 1 < argc) {
      options.deadline_seconds = number_of(argv[++i]);
    } else {
      const char* const by = std::strchr(argv[i], 'x');
      require(by != nullptr, "\"{}\" is no placement, expected such as 2x4", word);
      options.placements.push_back({number_of(argv[i]), number_of(by + 1)});
    }
  }
  require(!options.placements.empty(), "no placement");
  return options;
}

// The largest degree below n that divides n ranks; 1 for one rank.
int degree_with_a_ring(int n) {
  for (int degree = n / 2; degree > 1; --degree)
    if (n % degree == 0) return degree;
  return 1;
}

int run_cases(Fabric& inner, Stream& stream, const Placement& placement, int late_layers) {
  const int ranks = placement.size();
  require(inner.size() % ranks == 0, "{} ranks, which teams of {} machines of {} do not divide", inner.size(),
          placement.machines, placement.ranks_per_machine);
  const bool on_gpu = inner.device().kind == DeviceKind::cuda;
  if (on_gpu) require(late_layers == 0, "only streams of the CPU can be late");
  LateFabric late(inner, static_cast<unsigned>(inner.rank()) + 1);
  SequenceCase of{.placement = placement, .num_heads = ranks, .head_dim = 32, .tokens = {}};
  if (on_gpu) of.dtype = DType::bfloat16;
  for (int rank = 0; rank < ranks; ++rank) of.tokens.push_back(7 + 5 * rank % 11);
  int off = 0;
  const auto run = [&](Fabric& fabric, SequenceStrategy strategy, int layers) {
    if (layers == 0 || !why_not(strategy, placement, of.num_heads).empty()) return;
    const std::string why = run_layers(fabric, stream, strategy, of, layers);
    if (why.empty()) return;
    ++off;
    std::fprintf(stderr, "rank %d, %s on %d x %d, %d heads: %s\n", inner.rank(), name_of(strategy).data(),
                 placement.machines, placement.ranks_per_machine, of.num_heads, why.c_str());
  };
  for (const SequenceStrategy strategy : kSequenceStrategies) run(inner, strategy, 4);
  run(late, SequenceStrategy::ulysses, late_layers);
  of.num_heads = degree_with_a_ring(ranks);
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    if (of.num_heads < ranks) run(inner, strategy, 4);
    if (strategy != SequenceStrategy::ulysses) run(late, strategy, late_layers);
  }
  return off;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  using namespace heddle;
  try {
    const CasesOptions options = options_of(argc, argv);
    int ranks = 1;
    for (const Placement& placement : options.placements) ranks = std::max(ranks, placement.size());
    std::atomic<int> off = 0;
    const FabricOptions fabric_options{.heap_bytes = std::size_t{16} << 20,
                                       .deadline = std::chrono::seconds(options.deadline_seconds)};
    run_ranks(options.fabric, ranks, fabric_options, [&](Fabric& fabric, Stream& stream) {
      fabric.meet();
      if (fabric.rank() == 0) {
        std::puts("begun");
        std::fflush(stdout);
      }
      for (const Placement& placement : options.placements)
        off += run_cases(fabric, stream, placement, options.late_layers);
    });
    return off == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
