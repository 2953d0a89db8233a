// The strategy of one device: every weight whole, nothing to exchange.
#pragma once

#include "parallel/strategy.h"

namespace heddle {

class LocalStrategy : public Strategy {
 public:
  void embed(const Weight& table, const std::int32_t* tokens, Tensor y, const Lane& lane) override;
  void normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) override;
  Hidden wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) override;
  // One part after the other, block by block.
  void run(const Blocks& blocks, std::span<const PartRows> parts, const Execution& execution) override;
  void linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) override;
  void linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) override;
  void logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) override;
};

}  // namespace heddle
