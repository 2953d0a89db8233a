// Tensor parallelism whose norms are divided by token (`--tp-mode sequence`; Korthikanti et al., 2022, "Reducing
// Activation Recomputation in Large Transformer Models", section 4.2.2): each rank keeps the residual of its rows of a
// step and normalises them alone. The GEMM behind a norm gathers the rows of all ranks while it multiplies
// (fused/all_gather_linear), and the GEMM that ends a block sums each row at its rank (fused/linear_reduce_scatter).
//
// Rows are divided evenly, the first ranks' shards longer by one, by the number of rows alone. So a tensor of the
// hidden state is valid in this rank's rows, and elsewhere undefined.
//
// Where rank 0 has chosen so for the GEMM (StepChoices::qkv_gather, gate_up_gather) the rows come by an all-gather, and
// `linear` multiplies behind it: where all ranks have as many rows, since an all-gather takes no others.
//
// Steps for which rank 0 chooses so (StepChoices::sums), as small ones, are summed as FusedStrategy sums them.
#pragma once

#include <cstdint>
#include <memory>

#include "base/thread_pool.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/linear_reduce_scatter/linear_reduce_scatter.h"
#include "parallel/fused.h"

namespace heddle {

// Ranks with peer addresses; models without experts.
class TokenShardStrategy : public FusedStrategy {
 public:
  // As FusedStrategy.
  TokenShardStrategy(const ModelRank& place, Slice vocabulary, std::int64_t vocab_size);

  void normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) override;
  Hidden wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) override;
  // Throws InputError, naming the mode, for models with experts; in a dry run, too.
  void linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) override;
  void linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) override;
  void logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) override;

 private:
  // Made at the first step for the largest that a dry run has seen. On the CPU made again, by all ranks at the same step,
  // when one has more rows; on a GPU graphs hold its addresses.
  struct Fused {
    Fused(Communicator& communicator, std::int64_t rows, std::int64_t hidden, DType activations);

    std::int64_t rows;
    AllGatherLinear gather;
    LinearReduceScatter scatter;
    ThreadPool pool{1};  // of transfers on the CPU
    Stream transfers;
  };

  bool shards_step() const;  // the one that is enqueued
  Shards shards_of(std::int64_t rows) const;
  void keep_dry(std::int64_t rows, std::int64_t hidden, DType activations, const Lane& lane);
  Fused& fused_for(std::int64_t rows, std::int64_t hidden, DType activations, const Lane& lane);
  void gather(Tensor x, const Weight& weight, const GatherChoice& choice, Tensor y, const Lane& lane);
  void clear_others(const Tensor& rows, const Lane& lane) const;

  int ranks_;
  std::int64_t most_rows_ = 0;  // of all dry runs
  std::unique_ptr<Fused> fused_;
};

}  // namespace heddle
