// The plan of one device: every weight whole, nothing to exchange.
#pragma once

#include "kernels/linear.h"
#include "plans/plan.h"

namespace heddle {

class LocalPlan : public Plan {
 public:
  explicit LocalPlan(Compute compute = Compute::automatic) : compute_(compute) {}

  void add_norm(const Hidden& hidden, const Norm& norm, Tensor normalized, Stream& stream) override;
  void linear(Tensor x, const Weight& weight, Tensor y, Stream& stream) override;

 private:
  Compute compute_;
};

}  // namespace heddle
