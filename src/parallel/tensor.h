// Tensor parallelism: each rank multiplies by its slices of the weights (tensor_split.h). What a block leaves pending is
// then a partial sum, and one all-reduce per block adds up the ranks' (Shoeybi et al., 2019, "Megatron-LM", section 3).
// Every rank gets the same bits, since collectives sum in rank order (collectives/all_reduce.h).
#pragma once

#include <optional>

#include "collectives/communicator.h"
#include "parallel/local.h"
#include "parallel/registry.h"
#include "weights/slice.h"

namespace heddle {

class TensorStrategy : public LocalStrategy {
 public:
  // `vocabulary`: this rank's tokens, of `vocab_size`. Without a communicator: for dry runs only.
  TensorStrategy(const ModelRank& place, Slice vocabulary, std::int64_t vocab_size);

  void begin_step(const StepChoices& choices) override { choices_ = choices; }
  // Each rank fills in the rows of its own tokens, the others' are zero, and their sum is exact. The same for logits.
  void embed(const Weight& table, const std::int32_t* tokens, Tensor y, const Lane& lane) override;
  void normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) override;
  void sum_pending(const Hidden& hidden, const Lane& lane) override;
  // Two parts take turns where the execution has a lane for transfers (token_weave.h).
  void run(const Blocks& blocks, std::span<const PartRows> parts, const Execution& execution) override;
  void logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) override;

 protected:
  // Not in a dry run, a warm-up or TpMode::no_comm.
  bool crosses_ranks(const Lane& lane) const;
  const StepChoices& choices() const { return choices_; }  // of the step that is enqueued
  // `choice`: the algorithm; nothing: by size.
  void sum_over_ranks(Tensor tensor, const Lane& lane, const std::optional<Choice>& choice = {});
  Communicator* communicator() const { return communicator_; }
  // The columns of logits that this rank computes.
  Tensor own_logits(const Tensor& y) const { return y.column_slice(vocabulary_.first, vocabulary_.count); }

 private:
  Communicator* communicator_;
  const bool* alone_;
  bool communicates_;  // TpMode::no_comm: does not
  StepChoices choices_;
  Slice vocabulary_;
  std::int64_t vocab_size_;
};

}  // namespace heddle
