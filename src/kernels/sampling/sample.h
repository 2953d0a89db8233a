// Samples one token per row of logits; each row has its own settings. In this order, in float64:
//   1. repetition_penalty r: for tokens of the prompt or the text so far, l = l > 0 ? l / r : l * r   (CTRL)
//   2. presence and frequency penalty: for tokens of the text so far, l -= presence + frequency * count; then each
//      token's own bias, l += bias, which penalties do not scale
//   3. temperature 0: the largest l, ties to the smallest id. Otherwise l = (l - largest l) / temperature, then
//   4. top_k keeps the k largest (ties at the border by smaller id; 0: all),
//   5. top_p keeps the smallest set of largest probabilities whose sum reaches p (at least one),
//   6. min_p keeps those with at least min_p times the largest probability,
//   7. Gumbel-max draws from softmax(l): the largest l + g of those left, where g = -log(-log(u)) and
//      u = uniform(seed, position, id). The winner depends on no order of sums.
// Each filter renormalizes the probabilities that the one before left, as in transformers.
//
// CPU and GPU differ only where float64 does: exp and log in their last bits, and the border of top_p. There the CPU
// adds probabilities in float64 in descending order, the GPU in units of 2^-62 times the vocabulary.
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

// The settings of one row. Ranges: validate in engine/sampler.h.
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

  // Whether penalties or biases may change logits before the search for the largest one.
  HEDDLE_HOST_DEVICE bool adjusted() const { return num_history > 0; }
};

// A token that may still be sampled.
struct SampleCandidate {
  std::int32_t id = 0;
  double logit = 0;
};

struct SampleParams {
  Tensor logits;            // [num_rows, vocab_size], float32
  const SampleRow* rows{};  // [num_rows]; read with all that they point to when the stream reaches the operator
  std::int32_t* tokens{};   // [num_rows], ids or kUnsoundRow
  SampleCandidate* scratch = nullptr;  // on the CPU [num_rows, vocab_size]; a GPU needs none
};

// Enqueues on the lane's stream. On a GPU, rows and histories are in its memory, and vocab_size is at most
// kMostGpuVocabulary. Throws InvalidArgument unless shapes fit.
void sample(const SampleParams& params, const Lane& lane);

inline constexpr std::int64_t kMostGpuVocabulary = 1 << 22;

// The same for one sound row (argmax_of is not kUnsoundRow), synchronously on the host. `scratch` [logits.size()].
std::int32_t sample_of(std::span<const float> logits, const SampleRow& row, std::span<SampleCandidate> scratch);

}  // namespace heddle
