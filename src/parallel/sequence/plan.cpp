#include "parallel/sequence/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "parallel/sequence/batch_teams.h"

namespace heddle {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;    // positions are int
constexpr std::int64_t kMostElements = std::int64_t{1} << 52;  // exact in a double
constexpr int kMostHeadDim = 256;                              // of piece_attention()
constexpr std::string_view kElements = "batch x tokens x heads x head_dim";

void require_sizes(const SequenceRequest& request) {
  const auto at_least_one = [](std::int64_t value, std::string_view what) {
    if (value < 1) throw_error<InputError>("plan attention: {} is {}, expected 1 or more", what, value);
  };
  at_least_one(request.placement.machines, "machines");
  at_least_one(request.placement.ranks_per_machine, "gpus of a machine");
  at_least_one(request.num_heads, "heads");
  at_least_one(request.head_dim, "head_dim");
  at_least_one(request.num_tokens, "tokens");
  at_least_one(request.batch, "batch");
  if (request.head_dim > kMostHeadDim)
    throw_error<InputError>("plan attention: head_dim is {}, attention takes at most {}, and 32, 64 or 128 on GPUs",
                            request.head_dim, kMostHeadDim);
  const std::int64_t ranks = std::int64_t{request.placement.machines} * request.placement.ranks_per_machine;
  if (ranks > kMostPlannedRanks)
    throw_error<InputError>("plan attention: {} machines of {} GPUs are {} ranks, at most {} are planned",
                            request.placement.machines, request.placement.ranks_per_machine, ranks, kMostPlannedRanks);
  if (request.num_tokens > kMostTokens)
    throw_error<InputError>("plan attention: tokens is {}, at most {} are planned", request.num_tokens, kMostTokens);
  std::int64_t elements = request.num_tokens;
  for (const std::int64_t factor : {request.batch, request.num_heads, request.head_dim})
    elements = checked_mul(elements, factor, kElements);
  if (elements > kMostElements)
    throw_error<InputError>("plan attention: {} is {}, at most {} are planned", kElements, elements, kMostElements);
}

void require_degree(const SequenceRequest& request, int ranks) {
  if (!request.degree) return;
  if (std::ranges::count(ulysses_degrees(ranks, request.num_heads), *request.degree) > 0) return;
  throw_error<InputError>("plan attention: a Ulysses degree of {} does not divide {} ranks and {} heads. {}",
                          *request.degree, ranks, request.num_heads, what_fits(ranks, request.num_heads));
}

SequenceForecast forecast(SequenceStrategy strategy, const SequenceRequest& request, const BatchTeams& team,
                          std::optional<int> degree) {
  SequenceForecast result{.strategy = strategy, .reason = why_not(strategy, team.placement, request.num_heads, degree)};
  if (!result.reason.empty()) return result;
  result.mesh = make_sequence_mesh(strategy, team.placement, request.num_heads, degree);
  const SequenceShape shape = even_sequence(
      {.batch = team.batch, .num_heads = request.num_heads, .head_dim = request.head_dim, .dtype = request.dtype},
      request.num_tokens, result.mesh.size());
  const SequenceMemory memory(result.mesh, shape);
  const std::vector<SequenceProgram> programs = make_sequence_programs(strategy, memory);
  const SequenceCount count = count_sequence_programs(memory, programs);
  result.printed_elements = team.on_a_machine * printed_volume(strategy, volume_of(memory));
  result.counted_elements = team.on_a_machine * count.largest;
  result.difference = why_counts_differ(strategy, memory, count);
  result.barriers_of_all = count.barriers_of_all;
  SequenceRates rates = request.rates;
  rates.machine_link_bytes /= team.on_a_machine;
  result.timeline = predict_sequence(memory, programs, rates);
  return result;
}

bool is_better(const SequenceForecast& a, const SequenceForecast& b) {
  return std::pair(a.timeline.seconds, a.counted_elements) < std::pair(b.timeline.seconds, b.counted_elements);
}

// The strategy's best degree; `ruled` is its forecast with that of gcd_rule().
SequenceForecast fastest(const SequenceForecast& ruled, const SequenceRequest& request, const BatchTeams& team) {
  SequenceForecast best = ruled;
  const bool has_a_degree = ruled.strategy != SequenceStrategy::ulysses && ruled.strategy != SequenceStrategy::ring;
  if (request.degree || !has_a_degree) return best;
  for (const int degree : ulysses_degrees(team.placement.size(), request.num_heads)) {
    if (degree == ruled.mesh.groups()) continue;
    SequenceForecast other = forecast(ruled.strategy, request, team, degree);
    if (is_better(other, best)) best = std::move(other);
  }
  return best;
}

}  // namespace

SequencePlan plan_sequence_attention(const SequenceRequest& request) {
  require_sizes(request);
  const BatchTeams team = divide_batch(request.placement, request.batch, request.halves, "plan attention");
  require_degree(request, team.placement.size());
  SequencePlan plan;
  plan.strategies.reserve(std::size(kSequenceStrategies));
  plan.fastest.reserve(std::size(kSequenceStrategies));
  const SequenceForecast* best = nullptr;
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    plan.strategies.push_back(forecast(strategy, request, team, request.degree));
    plan.fastest.push_back(fastest(plan.strategies.back(), request, team));
    const SequenceForecast& candidate = plan.fastest.back();
    if (candidate.reason.empty() && (best == nullptr || is_better(candidate, *best))) best = &candidate;
  }
  plan.pick = best->strategy;  // Ring takes any heads
  return plan;
}

}  // namespace heddle
