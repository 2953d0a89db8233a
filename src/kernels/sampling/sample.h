// From rows of logits to tokens, one a row, each with settings of its own. In this order, in float64:
//   1. repetition_penalty r: for tokens of the prompt or the text so far, l = l > 0 ? l / r : l * r   (CTRL)
//   2. presence and frequency penalty: for tokens of the text so far, l -= presence + frequency * count; then each
//      token's own bias, l += bias: behind the penalties, so that they do not scale it
//   3. temperature 0: the largest l, ties to the smallest id. Otherwise l = (l - largest l) / temperature, then
//   4. top_k keeps the k largest (ties at the border by smaller id; 0: all),
//   5. top_p keeps the smallest set of largest probabilities whose sum reaches p (at least one),
//   6. min_p keeps those with at least min_p times the largest probability,
//   7. and of those left, the largest l + g, where g = -log(-log(u)) and u = uniform(seed, position, id): this draws
//      from softmax(l) (Gumbel-max), and whether a token wins depends on no order of sums.
// Each filter works on the probabilities renormalised after the one before, as transformers does.
//
// CPU and GPU agree but for what float64 leaves open: exp and log differ in their last bits, and where top_p cuts, the
// CPU adds probabilities up in float64 in falling order, the GPU in units of 2^-62 times the vocabulary.
#pragma once

#include <cstdint>
#include <span>

#include "base/host_device.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/sampling/argmax.h"

namespace heddle {

// A token of the prompt or the text so far, or one with a bias.
struct HistoryToken {
  std::int32_t id = 0;
  std::int32_t count = 0;  // in the text alone; kUnseen: neither there nor in the prompt
  float bias = 0;

  static constexpr std::int32_t kUnseen = -1;
};

// What chooses the token of one row. Ranges: engine/sampler.h, validate.
struct SampleRow {
  double temperature = 0;  // 0: greedy
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::uint64_t seed = 0;
  const HistoryToken* history = nullptr;  // [num_history], each id once, in any order; ids outside the row are ignored
  std::int32_t num_history = 0;           // may be 0 where there is neither penalty nor bias
  std::int32_t top_k = 0;                 // 0: all
  std::int32_t position = 0;              // of the token to be sampled

  // Whether its logits may be changed before the largest is looked for.
  HEDDLE_HOST_DEVICE bool adjusted() const { return num_history > 0; }
};

// A token that may still be chosen.
struct SampleCandidate {
  std::int32_t id = 0;
  double logit = 0;
};

struct SampleParams {
  Tensor logits;                       // [num_rows, vocab_size], float32
  const SampleRow* rows{};             // [num_rows]; they, and what they point to, are read when the stream comes to it
  std::int32_t* tokens{};              // [num_rows], ids or kUnsoundRow
  SampleCandidate* scratch = nullptr;  // on the CPU [num_rows, vocab_size]; a GPU needs none
};

// Enqueues on the lane's stream. On a GPU rows and histories are in its memory, and vocab_size is at most
// kMostGpuVocabulary. Throws InvalidArgument unless shapes fit.
void sample(const SampleParams& params, const Lane& lane);

inline constexpr std::int64_t kMostGpuVocabulary = 1 << 22;

// The same for one sound row (argmax_of is not kUnsoundRow), at once, on the host. `scratch` [logits.size()].
std::int32_t sample_of(std::span<const float> logits, const SampleRow& row, std::span<SampleCandidate> scratch);

}  // namespace heddle
