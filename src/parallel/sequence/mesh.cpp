#include "parallel/sequence/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::array<std::string_view, std::size(kSequenceStrategies)> kStrategyNames = {
    "ulysses", "ring", "usp", "tas", "torus", "one_sided"};

int degree_of(SequenceStrategy strategy, const Placement& placement, int num_heads, std::optional<int> degree) {
  if (strategy == SequenceStrategy::ulysses) return placement.size();
  if (strategy == SequenceStrategy::ring) return 1;
  return degree.value_or(gcd_rule(strategy, placement, num_heads));
}

// Whether the Ulysses groups of every part lie on one machine each. Ranks rise with u, so the ends decide.
bool parts_are_inside_machines(const SequenceMesh& mesh) {
  for (int first = 0; first < mesh.groups(); first += mesh.ulysses)
    for (int place = 0; place < mesh.ring; ++place)
      if (!mesh.placement.share_machine(mesh.rank(first, place), mesh.rank(first + mesh.ulysses - 1, place)))
        return false;
  return true;
}

}  // namespace

std::string_view name_of(SequenceStrategy strategy) {
  return kStrategyNames[static_cast<std::size_t>(strategy)];
}

std::optional<SequenceStrategy> sequence_strategy_named(std::string_view name) {
  const auto found = std::ranges::find(kStrategyNames, name);
  if (found == kStrategyNames.end()) return {};
  return static_cast<SequenceStrategy>(found - kStrategyNames.begin());
}

int gcd_rule(SequenceStrategy strategy, const Placement& placement, int num_heads) {
  const int degree = std::gcd(placement.size(), num_heads);
  const bool rings_share_a_machine = degree == 2 && placement.machines > 1 && placement.machines % 2 == 1;
  return rings_share_a_machine && strategy != SequenceStrategy::usp ? 1 : degree;
}

std::string why_not(SequenceStrategy strategy, const Placement& placement, int num_heads, std::optional<int> degree) {
  const int wanted = degree_of(strategy, placement, num_heads, degree);
  if (wanted < 1 || placement.size() % wanted != 0)
    return fmt::format("a Ulysses degree of {} does not divide {} ranks", wanted, placement.size());
  if (num_heads % wanted != 0) return fmt::format("a Ulysses degree of {} does not divide {} heads", wanted, num_heads);
  return {};
}

std::vector<int> ulysses_degrees(int ranks, int num_heads) {
  std::vector<int> degrees;
  for (int degree = 1; degree <= ranks; ++degree)
    if (ranks % degree == 0 && num_heads % degree == 0) degrees.push_back(degree);
  return degrees;
}

std::string what_fits(int ranks, int num_heads) {
  return fmt::format("usp, tas, torus and one_sided take a degree of {}; without a degree there is also {}",
                     fmt::join(ulysses_degrees(ranks, num_heads), ", "),
                     num_heads % ranks == 0 ? "ring, ulysses" : "ring");
}

Placement equal_machines(std::span<const int> ranks, int num_heads, const char* who) {
  require(!ranks.empty(), "sequence attention: no machines");
  const auto [fewest, most] = std::ranges::minmax(ranks);
  if (fewest == most) return {.machines = static_cast<int>(ranks.size()), .ranks_per_machine = fewest};
  const auto on = [&](std::int64_t machines, int each) {
    return fmt::format("on {} x {} {}", machines, each, what_fits(static_cast<int>(machines) * each, num_heads));
  };
  throw_error<InputError>("{}: machines of {} ranks; every strategy needs as many on each: {}; {}", who,
                          fmt::join(ranks, ", "), on(std::ssize(ranks), fewest),
                          on(std::ranges::count(ranks, most), most));
}

SequenceMesh make_sequence_mesh(SequenceStrategy strategy, const Placement& placement, int num_heads,
                                std::optional<int> degree) {
  require(placement.machines >= 1 && placement.ranks_per_machine >= 1 && num_heads >= 1,
          "sequence attention: {} machines of {} ranks and {} heads, expected 1 or more of each", placement.machines,
          placement.ranks_per_machine, num_heads);
  if (const std::string reason = why_not(strategy, placement, num_heads, degree); !reason.empty())
    throw_error<InvalidArgument>("sequence attention: {} does not fit: {}. {}", name_of(strategy), reason,
                                 what_fits(placement.size(), num_heads));
  const int groups = degree_of(strategy, placement, num_heads, degree);
  SequenceMesh mesh{.placement = placement, .torus = 1, .ulysses = groups, .ring = placement.size() / groups};
  if (strategy == SequenceStrategy::usp) mesh.neighbours = SequenceMesh::Neighbours::share_a_ulysses_group;
  if (strategy == SequenceStrategy::torus || strategy == SequenceStrategy::one_sided) {
    while (!parts_are_inside_machines(mesh)) {
      do ++mesh.torus;
      while (groups % mesh.torus != 0);
      mesh.ulysses = groups / mesh.torus;
    }
  }
  return mesh;
}

}  // namespace heddle
