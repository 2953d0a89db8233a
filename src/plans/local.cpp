#include "plans/local.h"

#include "base/trace.h"
#include "kernels/linear.h"
#include "kernels/rmsnorm.h"

namespace heddle {

void LocalPlan::add_norm(const Hidden& hidden, const Norm& norm, Tensor normalized, Stream& stream) {
  const bool pending = hidden.delta.data != nullptr;
  rmsnorm({.x = pending ? hidden.delta : hidden.residual,
           .weight = norm.weight,
           .residual = pending ? hidden.residual : Tensor{},
           .y = normalized,
           .eps = norm.eps},
          stream);
}

void LocalPlan::linear(Tensor x, const Weight& weight, Tensor y, Workspace workspace, Stream& stream) {
  const Span span(stream, "linear");
  heddle::linear(
      {.x = x, .weight = weight, .y = y, .workspace = workspace.data, .workspace_bytes = workspace.size_bytes}, stream);
}

}  // namespace heddle
