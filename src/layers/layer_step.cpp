#include "layers/layer_step.h"

#include "kernels/linear/linear.h"

namespace heddle {

LayerStep begin_step(Strategy& strategy, const StepTensors& tensors, const KvPages& kv, Arena& arena, const Lane& lane,
                     const LayerDTypes& dtypes, std::int64_t hidden) {
  const std::size_t workspace_bytes = linear_workspace_bytes(lane.stream.device());
  const Lane with_workspace = lane.with({arena.take_bytes(workspace_bytes), workspace_bytes});
  const Tensor residual = arena.take(tensors.num_tokens, hidden, DType::float32);
  const Tensor delta = arena.take(tensors.num_tokens, hidden, dtypes.deltas);
  return {.strategy = strategy,
          .tensors = tensors,
          .kv = kv,
          .arena = arena,
          .lane = with_workspace,
          .dtypes = dtypes,
          .residual = residual,
          .delta = delta};
}

PagedSequences sequences_of(const StepTensors& step) {
  return {.query_start = step.query_start,
          .context_len = step.context_len,
          .page_table = step.page_table,
          .num_sequences = step.num_sequences,
          .page_table_stride = step.page_table_stride,
          .max_query_len = step.max_query_len};
}

}  // namespace heddle
