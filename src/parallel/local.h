// The plan of one device: every weight whole, nothing to exchange.
#pragma once

#include "parallel/plan.h"

namespace heddle {

class LocalPlan : public Plan {
 public:
  void add_norm(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) override;
  void linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) override;
  void linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) override;
};

}  // namespace heddle
