// The two ends of a language model: tokens become the residual, and the hidden state becomes logits.
#pragma once

#include <cstdint>

#include "base/tensor.h"
#include "base/weight.h"
#include "layers/layer_step.h"
#include "parallel/strategy.h"

namespace heddle {

struct HeadWeights {
  Norm norm;
  Weight logits;  // of this rank's tokens; the embedding where tied
};

// The embeddings of the step's tokens, in step.residual; nothing is pending. `table`: this rank's tokens.
Hidden embed(const Weight& table, const LayerStep& step);

// The logits of the rows that the step wants [num_logit_rows, vocab_size], float32, in the step's arena: of the whole
// vocabulary, on every rank.
Tensor head(const HeadWeights& weights, const Hidden& hidden, std::int64_t vocab_size, const LayerStep& step);

}  // namespace heddle
