// Context parallelism of everything but attention: the ranks that divide keys and values have the same weights, so of a
// step with many rows each multiplies its share alone, and normalises it alone. Before attention the ranks exchange the
// rows of queries, keys and values; attention gives each the rows of its share (fused/flash_decode). In a step of few rows,
// as decoding ones are, each rank computes all of them, because the weights are read all the same.
//
// Shares follow from the number of rows alone. A tensor of the hidden state is valid in this rank's rows, and elsewhere
// undefined, as in token_shards.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "collectives/communicator.h"
#include "fused/row_shares.h"
#include "parallel/local.h"

namespace heddle {

class ContextRows final : public LocalStrategy {
 public:
  // Of the symmetric heap of each rank.
  static constexpr std::size_t kHeapBytes = std::size_t{64} << 20;

  // `inner` computes with the weights, on the rows of this rank's share: LocalStrategy, or TensorStrategy over ranks that
  // have the same share. This rank is team[shares.rank]; all ranks of the fabric's world have such a strategy. Without a
  // fabric for dry runs only.
  ContextRows(std::unique_ptr<Strategy> inner, const RowShares& shares, Fabric* fabric, Ranks team)
      : inner_(std::move(inner)), shares_(shares), fabric_(fabric), team_(std::move(team)) {}

  void begin_step(const StepChoices& choices) override { inner_->begin_step(choices); }
  void embed(const Weight& table, const std::int32_t* tokens, Tensor y, const Lane& lane) override;
  void normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) override;
  std::string why_not_summed() const override { return "with --cp ranks have rows of their own"; }
  Hidden wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) override;
  void linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) override;
  void linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) override;
  void logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) override;

 private:
  bool divides(const Tensor& tensor, const Lane& lane) const {
    return lane.dry_run == nullptr && shares_.divides(tensor.rows);
  }
  Tensor own(const Tensor& tensor) const;
  // Every rank gets the rows of all shares. Collective over the fabric's world at the first call.
  void complete(const Tensor& tensor, const Lane& lane);

  std::unique_ptr<Strategy> inner_;
  RowShares shares_;
  Fabric* fabric_;
  Ranks team_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace heddle
