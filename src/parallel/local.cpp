#include "parallel/local.h"

#include "base/trace.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
namespace {

LinearParams product(Tensor x, const Weight& weight, LinearRole role, Tensor y, Workspace workspace) {
  return {.x = x,
          .weight = weight,
          .y = y,
          .role = role,
          .workspace = workspace.data,
          .workspace_bytes = workspace.size_bytes};
}

}  // namespace

void LocalPlan::add_norm(const Hidden& hidden, const Norm& norm, Tensor normalized, Stream& stream) {
  const bool pending = hidden.delta.data != nullptr;
  rmsnorm({.x = pending ? hidden.delta : hidden.residual,
           .weight = norm.weight,
           .residual = pending ? hidden.residual : Tensor{},
           .y = normalized,
           .eps = norm.eps},
          stream);
}

void LocalPlan::linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, Workspace workspace, Stream& stream) {
  const Span span(stream, "linear");
  heddle::linear(product(x, weight, role, y, workspace), stream);
}

void LocalPlan::linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, Workspace workspace,
                              Stream& stream) {
  const Span span(stream, "linear");
  heddle::linear_swiglu({.gate_up = product(x, weight, LinearRole::gate_up, gate_up, workspace), .y = y}, stream);
}

}  // namespace heddle
