#include "layers/layer_step.h"

#include <array>
#include <span>

#include "base/error.h"
#include "kernels/linear/linear.h"

namespace heddle {

LayerStep begin_step(Strategy& strategy, const StepTensors& tensors, const KvPages& kv, Arena& arena,
                     const Execution& execution, const LayerDTypes& dtypes, std::int64_t hidden) {
  strategy.begin_step(tensors.choices);
  const Lane& lane = execution.compute;
  const std::size_t workspace_bytes = linear_workspace_bytes(lane.stream.device());
  const Lane with_workspace = lane.with({arena.take_bytes(workspace_bytes), workspace_bytes});
  const Tensor residual = arena.take(tensors.num_tokens, hidden, DType::float32);
  const BlockRows rows = strategy.take_block_rows(
      {.num_tokens = tensors.num_tokens, .hidden = hidden, .deltas = dtypes.deltas, .activations = dtypes.activations},
      arena, lane);
  return {.strategy = strategy,
          .tensors = tensors,
          .kv = kv,
          .arena = arena,
          .lane = with_workspace,
          .transfers = execution.transfers,
          .dtypes = dtypes,
          .residual = residual,
          .delta = rows.delta,
          .normalized = rows.normalized};
}

Hidden run_blocks(const LayerStep& step, int count, FunctionRef<Norm(int)> norm,
                  FunctionRef<void(int, const LayerStep&)> compute) {
  const auto num_parts = static_cast<std::size_t>(step.tensors.num_parts());
  const auto rows_of = [&](std::size_t part) -> PartRows {
    if (num_parts == 1) return {.residual = step.residual, .delta = step.delta, .normalized = step.normalized};
    const PartShape& shape = step.tensors.parts[part].shape;
    const auto rows = [&](const Tensor& whole) { return whole.row_slice(shape.first_token, shape.num_tokens); };
    return {.residual = rows(step.residual), .delta = rows(step.delta), .normalized = rows(step.normalized)};
  };
  const std::array<StepTensors, kMostParts> tensors{part_at(step.tensors, 0), part_at(step.tensors, kMostParts - 1)};
  const std::array<PartRows, kMostParts> rows{rows_of(0), rows_of(num_parts - 1)};
  const bool beside = num_parts > 1 && step.transfers != nullptr;
  const Execution execution = beside ? Execution(step.transfers->compute_of(step.lane), *step.transfers) : step.lane;
  const auto compute_part = [&](int block, int part) {
    const auto index = static_cast<std::size_t>(part);
    compute(block, {.strategy = step.strategy,
                    .tensors = tensors[index],
                    .kv = step.kv,
                    .arena = step.arena,
                    .lane = execution.compute,
                    .transfers = nullptr,
                    .dtypes = step.dtypes,
                    .residual = rows[index].residual,
                    .delta = rows[index].delta,
                    .normalized = rows[index].normalized,
                    .part = part});
  };
  step.strategy.run({.count = count, .norm = norm, .compute = compute_part}, std::span(rows).first(num_parts),
                    execution);
  return {.residual = step.residual, .delta = count == 0 ? Tensor{} : step.delta};
}

// What is pending behind fused attention is float32, whatever blocks leave. The residual is in two tensors by turns, because
// many blocks of a kernel read one while one of them writes the other.
Hidden run_fused_blocks(const LayerStep& step, int count, FunctionRef<Norm(int)> norm,
                        FunctionRef<void(int, const LayerStep&)> compute,
                        FunctionRef<void(int, const Hidden&, const Hidden&)> fused) {
  require(step.tensors.num_parts() == 1, "fused attention of a step in parts");
  const Tensor other = step.arena.take(step.residual.rows, step.residual.columns, DType::float32);
  const Tensor attended = step.arena.take(step.residual.rows, step.residual.columns, DType::float32);
  Hidden hidden{.residual = step.residual, .delta = {}};
  for (int block = 0; block < count; ++block) {
    if (block % 2 == 0) {
      step.strategy.sum_pending(hidden, step.lane);
      const bool in_other = hidden.residual.data == other.data;
      const Hidden after{.residual = in_other ? step.residual : other, .delta = attended};
      fused(block, hidden, after);
      hidden = after;
    } else {
      step.strategy.normalize(hidden, norm(block), step.normalized, step.lane);
      compute(block, step);
      hidden.delta = step.delta;
    }
  }
  return hidden;
}

PagedSequences sequences_of(const StepTensors& step) {
  return {.query_start = step.query_start,
          .context_len = step.context_len,
          .page_table = step.page_table,
          .num_sequences = step.num_sequences,
          .page_table_stride = step.page_table_stride,
          .max_query_len = step.max_query_len,
          .max_context_len = step.max_context_len};
}

PagedKv pages_of(const LayerStep& step, int layer, KeyValuePlanes planes) {
  const KvPages& kv = step.kv;
  const KvPlane& keys = kv.layout.plane(planes.keys);
  return {.keys = kv.at(planes.keys, layer),
          .values = kv.at(planes.values, layer),
          .num_kv_heads = keys.num_heads,
          .page_size = kv.page_size,
          .head_dim = keys.width,
          .dtype = keys.dtype,
          .shard = step.strategy.attention().shard()};
}

}  // namespace heddle
