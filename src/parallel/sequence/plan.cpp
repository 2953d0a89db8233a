#include "parallel/sequence/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;    // positions are int
constexpr std::int64_t kMostElements = std::int64_t{1} << 52;  // exact in a double
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

void require_degree(const SequenceRequest& request) {
  if (!request.degree) return;
  const int ranks = request.placement.size();
  if (*request.degree >= 1 && ranks % *request.degree == 0 && request.num_heads % *request.degree == 0) return;
  std::vector<int> degrees;
  for (int degree = 1; degree <= ranks; ++degree)
    if (ranks % degree == 0 && request.num_heads % degree == 0) degrees.push_back(degree);
  std::vector<std::string_view> others{name_of(SequenceStrategy::ring)};
  if (request.num_heads % ranks == 0) others.push_back(name_of(SequenceStrategy::ulysses));
  throw_error<InputError>(
      "plan attention: a Ulysses degree of {} does not divide {} ranks and {} heads. usp, tas and torus take {}; "
      "without a degree there is also {}",
      *request.degree, ranks, request.num_heads, fmt::join(degrees, ", "), fmt::join(others, ", "));
}

SequenceForecast forecast(SequenceStrategy strategy, const SequenceRequest& request) {
  SequenceForecast result{.strategy = strategy,
                          .reason = why_not(strategy, request.placement, request.num_heads, request.degree)};
  if (!result.reason.empty()) return result;
  result.mesh = make_sequence_mesh(strategy, request.placement, request.num_heads, request.degree);
  const SequenceVolume volume{.machines = request.placement.machines,
                              .gpus = request.placement.ranks_per_machine,
                              .degree = result.mesh.groups(),
                              .elements = request.num_tokens * request.batch * request.num_heads * request.head_dim};
  const bool ring_across = strategy == SequenceStrategy::usp || strategy == SequenceStrategy::ring;
  result.printed_elements = ring_across ? usp_volume(volume) : stream_fusion_volume(volume);
  const SequenceShape shape = even_sequence(
      {.batch = request.batch, .num_heads = request.num_heads, .head_dim = request.head_dim, .dtype = request.dtype},
      request.num_tokens, result.mesh.size());
  const SequenceMemory memory(result.mesh, shape);
  const std::vector<SequenceProgram> programs = make_sequence_programs(strategy, memory);
  const SequenceCount count = count_sequence_programs(memory, programs);
  result.counted_elements = count.largest;
  result.barriers_of_all = count.barriers_of_all;
  result.timeline = predict_sequence(memory, programs, request.rates);
  return result;
}

}  // namespace

SequencePlan plan_sequence_attention(const SequenceRequest& request) {
  require_sizes(request);
  require_degree(request);
  SequencePlan plan;
  const SequenceForecast* best = nullptr;
  for (const SequenceStrategy strategy : kSequenceStrategies) plan.strategies.push_back(forecast(strategy, request));
  for (const SequenceForecast& candidate : plan.strategies) {
    if (!candidate.reason.empty()) continue;
    const auto rank = [](const SequenceForecast& of) { return std::pair(of.timeline.seconds, of.counted_elements); };
    if (best == nullptr || rank(candidate) < rank(*best)) best = &candidate;
  }
  plan.pick = best->strategy;  // Ring takes any heads
  return plan;
}

}  // namespace heddle
