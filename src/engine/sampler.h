// From logits to a token.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "step/step_plan.h"

namespace heddle {

struct TokenLogprob {
  std::int32_t id = 0;
  double logprob = 0;
};

// A token that may still be chosen.
struct SampleCandidate {
  std::int32_t id = 0;
  double logit = 0;
};

// Throws InputError that names the parameter (as the command line calls it) when one is out of its range:
// temperature, top_k >= 0, top_p in (0, 1], min_p in [0, 1], repetition_penalty in [0.001, 1000], the other two within
// +-1000.
void validate(const SamplingParams& params);

// Chooses tokens, one row of logits after the other. Holds scratch for one row, so it is not for several threads.
//
// In this order, in float64:
//   1. repetition_penalty r: for tokens of the prompt or the text so far, l = l > 0 ? l / r : l * r   (CTRL)
//   2. presence and frequency penalty: for tokens of the text so far, l -= presence + frequency * count
//   3. temperature 0: the largest l, ties to the smallest id. Otherwise l /= temperature, then of the candidates
//   4. top_k keeps the k largest (ties at the border by smaller id; 0: all),
//   5. top_p keeps the smallest set of largest probabilities whose sum reaches p (at least one),
//   6. min_p keeps those with at least min_p times the largest probability,
//   7. and of those left, the largest l + g, where g = -log(-log(u)) and u = uniform(seed, position, id): this draws
//      from softmax(l) (Gumbel-max), and whether a token wins depends on no order of sums.
// Each filter works on the probabilities renormalised after the one before, as transformers does.
class Sampler {
 public:
  explicit Sampler(std::int64_t vocab_size);

  // `logits` [vocab_size] float32; `history`: the prompt and the text so far, of which the first `prompt_length` are
  // the prompt. Throws Failure when the row has a NaN, +infinity or nothing finite.
  std::int32_t sample(std::span<const float> logits, const StepSample& sample, std::span<const std::int32_t> history,
                      std::int64_t prompt_length);

  // The model's own log-probability (log_softmax, before penalties, temperature and filters) of `id`, and into `top`
  // the top.size() likeliest tokens in falling order, ties by smaller id.
  double logprobs(std::span<const float> logits, std::int32_t id, std::span<TokenLogprob> top);

  // The same for a row that nothing was sampled from, which is checked first: throws Failure, naming the token and its
  // position, when the row has a NaN, +infinity or nothing finite, or gives `id` no probability.
  double score(std::span<const float> logits, std::int32_t id, std::int32_t position, std::span<TokenLogprob> top);

 private:
  void apply_penalties(const SamplingParams& params, std::span<const std::int32_t> history, std::int64_t prompt_length);
  void keep_top_k(std::int32_t k);
  void keep_top_p(double p);
  void keep_min_p(double min_p);

  std::vector<SampleCandidate> candidates_;
  std::vector<std::int32_t> counts_;  // of tokens in the text so far; all 0 between calls
  std::vector<bool> seen_;            // in prompt or text; all false between calls
};

}  // namespace heddle
