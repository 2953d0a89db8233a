// Tensor parallelism whose sums over ranks, residual and norm are one operator (TokenWeave, section 3.2). Each token's
// residual is on one rank between the blocks, except in small steps (fused/all_reduce_norm): who has it follows from the
// number of rows of the tensor that normalize() is given, and from nothing else. In steps for which rank 0 has chosen separate
// sums (StepChoices), all of it is TensorStrategy's.
#pragma once

#include "fused/all_reduce_norm/all_reduce_norm.h"
#include "parallel/tensor.h"

namespace heddle {

class FusedStrategy : public TensorStrategy {
 public:
  // As TensorStrategy; without place.all_reduce_norm for dry runs only.
  FusedStrategy(const ModelRank& place, Slice vocabulary, std::int64_t vocab_size);

  // In the AllReduceNorm's row_memory() where it has so much, so that sums of many rows move no row twice; in the dry run of
  // an outline always.
  BlockRows take_block_rows(const BlockRowsShape& shape, Arena& arena, const Lane& lane) override;

  // Throws InputError, naming the mode, for rows that the operator does not take; in a dry run, too.
  void normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) override;

  // Gathers over ranks the wanted rows of the residual, not all of it.
  Hidden wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) override;

 protected:
  // Enqueues zeros to the rows [first, end) of `tensor`; nothing where first >= end.
  static void clear_rows(const Tensor& tensor, std::int64_t first, std::int64_t end, const Lane& lane);

 private:
  bool keep_shares(const Hidden& hidden, std::int64_t prefix_tokens, const Lane& lane) const;

  TpMode mode_;
  AllReduceNorm* all_reduce_norm_;
};

}  // namespace heddle
