// Samples a token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/sampling/sample.h"
#include "step/step_plan.h"

namespace heddle {

struct TokenLogprob {
  std::int32_t id = 0;
  double logprob = 0;
};

// Throws InputError that names the parameter (by its name on the command line) when one is out of range: temperature,
// top_k >= 0, top_p in (0, 1], min_p in [0, 1], repetition_penalty in [0.001, 1000], the other two within +-1000.
void validate(const SamplingParams& params);

// Which of a run's answers: one sample of one prompt, both counted from 0.
struct AnswerIndex {
  std::uint64_t prompt = 0;
  std::uint32_t sample = 0;
};

// The seed of one answer in a run with `seed`. Answers draw independent random numbers, and the same ones in every run:
// Philox with the index as counter, apart from the counters of uniform() (kernels/sampling/random.h). The first
// answer's is `seed` itself, so any answer can be repeated alone with its own seed; the others are below 2^53, which
// JSON readers keep.
std::uint64_t seed_of(std::uint64_t seed, AnswerIndex answer);

// The place of token `id` among all by its logit, from 1 on; of equal ones the smaller id goes first.
std::int64_t rank_among(std::span<const float> logits, std::int32_t id);

// Chooses tokens, one row of logits after the other, by the formulas of kernels/sampling/sample.h. Not thread-safe: it
// has scratch for one row.
class Sampler {
 public:
  explicit Sampler(std::int64_t vocab_size);

  // `logits` [vocab_size] float32; `history`: the tokens that penalties and biases change, each once. Throws Failure
  // when the row has a NaN, +infinity or nothing finite.
  std::int32_t sample(std::span<const float> logits, const StepSample& sample,
                      std::span<const HistoryToken> history = {});

  // Returns the model's own log-probability (log_softmax, before penalties, temperature and filters) of `id`. Fills
  // `top` with the top.size() likeliest tokens in descending order, ties by smaller id.
  double logprobs(std::span<const float> logits, std::int32_t id, std::span<TokenLogprob> top);

  // The same for a row that no token was sampled from. Checks the row first: throws Failure that names the token and
  // its position when the row has a NaN, +infinity or nothing finite, or gives `id` no probability.
  double score(std::span<const float> logits, std::int32_t id, std::int32_t position, std::span<TokenLogprob> top);

 private:
  std::vector<SampleCandidate> candidates_;  // [vocab_size], scratch
};

}  // namespace heddle
