#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/random.h"

namespace heddle {
namespace {

void check_range(double value, double min, double max, std::string_view name, std::string_view range) {
  if (!(value >= min && value <= max)) throw_error<InputError>("{} is {}, it must be {}", name, value, range);
}

// In falling order of logits; ties by smaller id, so that every order of candidates gives the same result.
bool larger(const SampleCandidate& a, const SampleCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The id of the largest logit, the smallest such id; throws Failure when the row holds what no sound model gives.
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

Sampler::Sampler(std::int64_t vocab_size) {
  candidates_.reserve(static_cast<std::size_t>(vocab_size));
  counts_.assign(static_cast<std::size_t>(vocab_size), 0);
  seen_.assign(static_cast<std::size_t>(vocab_size), false);
}

std::int32_t Sampler::sample(std::span<const float> logits, const StepSample& sample,
                             std::span<const std::int32_t> history, std::int64_t prompt_length) {
  require(logits.size() == counts_.size(), "sampler: {} logits for a vocabulary of {}", logits.size(), counts_.size());
  const SamplingParams& params = sample.params;
  const std::int32_t largest_id = check_row(logits, sample.position);
  const bool penalised =
      params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
  if (params.temperature == 0 && !penalised) return largest_id;

  candidates_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id)
    candidates_.push_back({static_cast<std::int32_t>(id), static_cast<double>(logits[id])});
  if (penalised) apply_penalties(params, history, prompt_length);
  if (params.temperature == 0) return std::ranges::min_element(candidates_, larger)->id;

  // The largest is subtracted first, so that a tiny temperature cannot overflow it.
  const double largest = std::ranges::min_element(candidates_, larger)->logit;
  for (SampleCandidate& candidate : candidates_) candidate.logit = (candidate.logit - largest) / params.temperature;
  keep_top_k(params.top_k);
  keep_top_p(params.top_p);
  keep_min_p(params.min_p);
  for (SampleCandidate& candidate : candidates_) {
    const double u =
        uniform(params.seed, static_cast<std::uint32_t>(sample.position), static_cast<std::uint32_t>(candidate.id));
    candidate.logit -= std::log(-std::log(u));
  }
  return std::ranges::min_element(candidates_, larger)->id;
}

void Sampler::apply_penalties(const SamplingParams& params, std::span<const std::int32_t> history,
                              std::int64_t prompt_length) {
  for (std::size_t i = 0; i < history.size(); ++i) {
    const auto id = static_cast<std::size_t>(history[i]);
    seen_[id] = true;
    if (static_cast<std::int64_t>(i) >= prompt_length) ++counts_[id];
  }
  for (const std::int32_t token : history) {
    const auto id = static_cast<std::size_t>(token);
    if (!seen_[id]) continue;  // a repeated token, done before
    double& logit = candidates_[id].logit;
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (counts_[id] > 0) logit -= params.presence_penalty + params.frequency_penalty * counts_[id];
    seen_[id] = false;
    counts_[id] = 0;
  }
}

void Sampler::keep_top_k(std::int32_t k) {
  if (k == 0 || static_cast<std::size_t>(k) >= candidates_.size()) return;
  const auto border = candidates_.begin() + k;
  std::nth_element(candidates_.begin(), border, candidates_.end(), larger);
  candidates_.erase(border, candidates_.end());
}

void Sampler::keep_top_p(double p) {
  if (p >= 1) return;
  std::ranges::sort(candidates_, larger);
  double total = 0;
  for (const SampleCandidate& candidate : candidates_) total += std::exp(candidate.logit);
  double sum = 0;
  std::size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || sum < p * total)) sum += std::exp(candidates_[kept++].logit);
  candidates_.resize(kept);
}

void Sampler::keep_min_p(double min_p) {
  if (min_p == 0) return;
  // Logits are relative to the largest, which is 0: a probability relative to the largest is exp(logit).
  std::erase_if(candidates_, [&](const SampleCandidate& candidate) { return std::exp(candidate.logit) < min_p; });
}

double Sampler::logprobs(std::span<const float> logits, std::int32_t id, std::span<TokenLogprob> top) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  if (!top.empty()) {
    candidates_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i)
      candidates_.push_back({static_cast<std::int32_t>(i), static_cast<double>(logits[i])});
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
