// Selects the program that a call of AllReduceNorm runs.
#pragma once

#include "base/dtype_switch.h"
#include "fused/all_reduce_norm/direct_norm.cuh"
#include "fused/all_reduce_norm/norm_form.h"
#include "fused/all_reduce_norm/pipelined_norm.cuh"
#include "fused/all_reduce_norm/small_calls.cuh"

namespace heddle {

// Calls run(program) once. X, Y: elements of x and y.
template <class X, class Y, class Run>
void with_norm_program(const AllReduceNormParams& params, const EvenShards& shards, const NormForm& form,
                       std::size_t slots_bytes, const Run& run) {
  const NormRows<X, Y> rows{.x = static_cast<const std::byte*>(params.x.data),
                            .residual = static_cast<float*>(params.residual.data),
                            .weight = static_cast<const float*>(params.weight),
                            .y = static_cast<std::byte*>(params.y.data),
                            .hidden = params.x.columns,
                            .eps = params.eps,
                            .rows = shards};
  if (form.regime == AllReduceNormRegime::one_shot) return run(OneShotNorm<X, Y>{rows});
  if (form.regime == AllReduceNormRegime::two_phase) return run(TwoPhaseNorm<X, Y>{rows});
  if (form.direct) return run(DirectNorm<X, Y>{rows});
  run(PipelinedNorm<X, Y>{rows, NormChunks(shards, rows.x_bytes(), rows.y_bytes(), form.blocks, slots_bytes)});
}

}  // namespace heddle
