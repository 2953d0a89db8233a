#include "parallel/local.h"

#include "base/trace.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
void LocalPlan::add_norm(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) {
  const bool pending = hidden.delta.data != nullptr;
  rmsnorm({.x = pending ? hidden.delta : hidden.residual,
           .weight = norm.weight,
           .residual = pending ? hidden.residual : Tensor{},
           .y = normalized,
           .eps = norm.eps},
          lane);
}

void LocalPlan::linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) {
  const Span span(lane.stream, "linear");
  heddle::linear({.x = x, .weight = weight, .y = y, .role = role}, lane);
}

void LocalPlan::linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) {
  const Span span(lane.stream, "linear");
  heddle::linear_swiglu({.gate_up = {.x = x, .weight = weight, .y = gate_up, .role = LinearRole::gate_up}, .y = y},
                        lane);
}

}  // namespace heddle
