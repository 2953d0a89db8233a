#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/sampling/random.h"

namespace heddle {
namespace {

void check_range(double value, double min, double max, std::string_view name, std::string_view range) {
  if (!(value >= min && value <= max)) throw_error<InputError>("{} is {}, it must be {}", name, value, range);
}

// Descending order of logits; ties by smaller id, so that the order of candidates does not matter.
bool larger(const SampleCandidate& a, const SampleCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The id of the largest logit, the smallest such id. Throws Failure when the row has NaN, +infinity or nothing finite.
std::int32_t check_row(std::span<const float> logits, std::int32_t position) {
  std::size_t largest = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] < std::numeric_limits<float>::infinity()))  // NaN too
      throw_error<Failure>(
          "the model's logits are not finite at position {}: token {} has {}; are its weights damaged?", position, id,
          std::isnan(logits[id]) ? "nan" : "inf");
    if (logits[id] > logits[largest]) largest = id;
  }
  if (logits[largest] == -std::numeric_limits<float>::infinity())
    throw_error<Failure>("the model's logits are not finite at position {}: all are -inf; are its weights damaged?",
                         position);
  return static_cast<std::int32_t>(largest);
}

}  // namespace

void validate(const SamplingParams& params) {
  constexpr double kMost = std::numeric_limits<double>::max();
  check_range(params.temperature, 0, kMost, "temperature", "0 (greedy) or more");
  check_range(params.top_k, 0, std::numeric_limits<std::int32_t>::max(), "top_k", "0 (all) or more");
  check_range(params.top_p, std::numeric_limits<double>::denorm_min(), 1, "top_p", "in (0, 1]");
  check_range(params.min_p, 0, 1, "min_p", "in [0, 1]");
  check_range(params.repetition_penalty, 1e-3, 1e3, "repetition_penalty", "from 0.001 to 1000");
  check_range(params.presence_penalty, -1e3, 1e3, "presence_penalty", "from -1000 to 1000");
  check_range(params.frequency_penalty, -1e3, 1e3, "frequency_penalty", "from -1000 to 1000");
}

std::uint64_t seed_of(std::uint64_t seed, AnswerIndex answer) {
  if (answer.prompt == 0 && answer.sample == 0) return seed;
  constexpr std::uint32_t kSeeds = 1;  // the last word of uniform()'s counters is 0
  const auto bits = philox({static_cast<std::uint32_t>(answer.prompt), static_cast<std::uint32_t>(answer.prompt >> 32),
                            answer.sample, kSeeds},
                           {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return (std::uint64_t{bits[0]} << 32 | bits[1]) >> 11;
}

Sampler::Sampler(std::int64_t vocab_size) {
  candidates_.resize(static_cast<std::size_t>(vocab_size));
}

std::int32_t Sampler::sample(std::span<const float> logits, const StepSample& sample,
                             std::span<const HistoryToken> history) {
  require(logits.size() == candidates_.size(), "sampler: {} logits for a vocabulary of {}", logits.size(),
          candidates_.size());
  const SamplingParams& params = sample.params;
  const std::int32_t largest_id = check_row(logits, sample.position);
  if (params.temperature == 0 && history.empty()) return largest_id;
  return sample_of(logits,
                   {.temperature = params.temperature,
                    .top_p = params.top_p,
                    .min_p = params.min_p,
                    .repetition_penalty = params.repetition_penalty,
                    .presence_penalty = params.presence_penalty,
                    .frequency_penalty = params.frequency_penalty,
                    .seed = params.seed,
                    .history = history.data(),
                    .num_history = static_cast<std::int32_t>(history.size()),
                    .top_k = params.top_k,
                    .position = sample.position},
                   candidates_);
}

std::int64_t rank_among(std::span<const float> logits, std::int32_t id) {
  const auto index = static_cast<std::size_t>(id);
  const float own = logits[index];
  return 1 + std::ranges::count_if(logits, [own](float logit) { return logit > own; }) +
         std::ranges::count(logits.first(index), own);
}

double Sampler::logprobs(std::span<const float> logits, std::int32_t id, std::span<TokenLogprob> top) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  if (!top.empty()) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      candidates_[i] = {static_cast<std::int32_t>(i), static_cast<double>(logits[i])};
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(std::min(top.size(), candidates_.size()));
    std::partial_sort(candidates_.begin(), end, candidates_.end(), larger);
    for (std::size_t i = 0; i < top.size(); ++i) top[i] = {candidates_[i].id, candidates_[i].logit - log_sum};
  }
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - log_sum;
}

double Sampler::score(std::span<const float> logits, std::int32_t id, std::int32_t position,
                      std::span<TokenLogprob> top) {
  check_row(logits, position);
  const double logprob = logprobs(logits, id, top);
  if (!std::isfinite(logprob))
    throw_error<Failure>("the model gave {} as log-probability of token {} at position {}: are its weights damaged?",
                         logprob, id, position);
  return logprob;
}

}  // namespace heddle
