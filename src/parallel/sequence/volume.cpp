#include "parallel/sequence/volume.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {

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

}  // namespace heddle
