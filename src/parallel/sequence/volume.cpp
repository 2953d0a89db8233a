#include "parallel/sequence/volume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace heddle {

SequenceVolume volume_of(const SequenceMemory& memory) {
  const SequenceMesh& mesh = memory.mesh();
  const SequenceShape& shape = memory.shape();
  return {.machines = mesh.placement.machines,
          .gpus = mesh.placement.ranks_per_machine,
          .degree = mesh.groups(),
          .elements = shape.num_tokens() * shape.batch * shape.num_heads * shape.head_dim};
}

double usp_volume(const SequenceVolume& of) {
  const double n = of.machines, ring = n * of.gpus / of.degree, unit = static_cast<double>(of.elements) / n;
  if (ring >= n) return 2 * (n - 1) * unit;
  return (2 * (ring - 1) * n / ring + 4 * (n / ring - 1) / (n / ring)) * unit;
}

double stream_fusion_volume(const SequenceVolume& of) {
  const double n = of.machines, degree = of.degree, unit = static_cast<double>(of.elements) / n;
  if (degree >= n) return 4 * (n - 1) / n * unit;
  return (2 * (n / degree - 1) + 4 * (degree - 1) / degree * n / degree) * unit;
}

double printed_volume(SequenceStrategy strategy, const SequenceVolume& of) {
  const bool ring_across = strategy == SequenceStrategy::usp || strategy == SequenceStrategy::ring;
  return ring_across ? usp_volume(of) : stream_fusion_volume(of);
}

std::vector<SequenceProgram> make_sequence_programs(SequenceStrategy strategy, const SequenceMemory& memory) {
  std::vector<SequenceProgram> programs;
  programs.reserve(static_cast<std::size_t>(memory.mesh().size()));
  for (int rank = 0; rank < memory.mesh().size(); ++rank)
    programs.push_back(make_sequence_program(strategy, memory, rank));
  return programs;
}

SequenceCount count_sequence_programs(const SequenceMemory& memory, const std::vector<SequenceProgram>& programs) {
  const Placement& placement = memory.mesh().placement;
  SequenceCount count;
  count.into_machine.resize(static_cast<std::size_t>(placement.machines));
  count.out_of_machine = count.into_machine;
  const auto size = static_cast<std::int64_t>(size_of(memory.shape().dtype));
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    int barriers = 0;
    for (const SequenceOp& op : programs[static_cast<std::size_t>(rank)].ops) {
      if (const auto* barrier = std::get_if<SequenceBarrier>(&op))
        barriers += static_cast<int>(barrier->ranks.size()) == memory.mesh().size();
      const auto* move = std::get_if<SequenceMove>(&op);
      if (move == nullptr || placement.share_machine(rank, move->peer)) continue;
      const bool pull = move->direction == SequenceMove::Direction::pull;
      const auto to = static_cast<std::size_t>(placement.machine_of(pull ? rank : move->peer));
      const auto from = static_cast<std::size_t>(placement.machine_of(pull ? move->peer : rank));
      count.into_machine[to] += move->bytes / size;
      count.out_of_machine[from] += move->bytes / size;
    }
    count.barriers_of_all = std::max(count.barriers_of_all, barriers);
  }
  count.largest = std::max(std::ranges::max(count.into_machine), std::ranges::max(count.out_of_machine));
  return count;
}

std::string why_counts_differ(SequenceStrategy strategy, const SequenceMemory& memory, const SequenceCount& count) {
  const double more = static_cast<double>(count.largest) - printed_volume(strategy, volume_of(memory));
  if (std::abs(more) < 0.5) return {};
  const SequenceMesh& mesh = memory.mesh();
  const int machines = mesh.placement.machines, gpus = mesh.placement.ranks_per_machine;
  const bool ring_across = strategy == SequenceStrategy::usp || strategy == SequenceStrategy::ring;
  std::vector<std::string> reasons;
  if (ring_across && mesh.ring < machines && mesh.ring > 1)
    reasons.emplace_back("equation 5 lets each machine pull all heads, and its ranks have P_r / N of them");
  if (!ring_across && mesh.groups() < machines && mesh.groups() > 1)
    reasons.emplace_back("equation 7 counts Ulysses N / P_u times, and a machine's own tokens are L / N in any case");
  const auto fills = [](int a, int b) { return a % b == 0 || b % a == 0; };
  // Groups lie side by side in TAS, rings in USP.
  if (!fills(ring_across ? mesh.groups() : mesh.ring, gpus))
    reasons.emplace_back(
        fmt::format("{} of {} ranks straddle machines of {}, so machines differ, and the one with the most is counted",
                    ring_across ? "Ulysses groups" : "rings", ring_across ? mesh.groups() : mesh.ring, gpus));
  if (const std::int64_t tokens = memory.shape().num_tokens(); tokens % mesh.size() != 0)
    reasons.emplace_back(fmt::format("{} tokens do not divide by {} ranks, and the machine with the most is counted",
                                     tokens, mesh.size()));
  if (reasons.empty()) reasons.emplace_back("the equation is of machines and degrees that divide each other");
  return fmt::format("{:.0f} {} than printed: {}", std::abs(more), more > 0 ? "more" : "fewer",
                     fmt::join(reasons, "; "));
}

}  // namespace heddle
