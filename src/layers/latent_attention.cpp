#include "layers/latent_attention.h"

#include <cstdint>

#include "base/trace.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/latent_append.h"
#include "kernels/linear/head_linear.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
namespace {

// Of one head, whose keys and values are the same rows.
PagedKv latent_pages(const LayerStep& step, int layer) {
  const KvPages& kv = step.kv;
  const KvPlane& latents = kv.layout.plane(0);
  return {.keys = kv.at(0, layer),
          .values = kv.at(0, layer),
          .num_kv_heads = latents.num_heads,
          .page_size = kv.page_size,
          .head_dim = latents.width,
          .dtype = latents.dtype,
          .shard = step.strategy.attention().shard()};
}

std::size_t plan_bytes_of(const StepLimits& limits, int num_heads, Device device) {
  if (device.kind == DeviceKind::cpu) return 0;
  return Arena::rounded(latent_plan_bytes(limits.max_tokens, limits.max_sequences, num_heads));
}

// The first `width` columns of each of `num_heads` heads that lie `stride` apart, as head_linear() takes them.
Tensor of_heads(Tensor rows, int num_heads, std::int64_t stride, std::int64_t width) {
  return rows.column_slice(0, (num_heads - 1) * stride + width);
}

}  // namespace

LatentAttention::Memory LatentAttention::take_memory(const StepLimits& limits, Arena& arena, Device device) const {
  const std::size_t scratch_bytes =
      device.kind == DeviceKind::cpu
          ? 0
          : attention_scratch_bytes(limits.max_tokens, limits.max_sequences, shape_.num_heads, shape_.cached_dim());
  Memory memory;
  memory.scratch = arena.take_bytes(scratch_bytes);
  memory.plans = static_cast<std::byte*>(
      arena.take_bytes(static_cast<std::size_t>(limits.max_parts) * plan_bytes_of(limits, shape_.num_heads, device)));
  if (device.kind == DeviceKind::cpu) memory = {};
  return memory;
}

// [num_tokens, num_heads * query_dim]: the first columns of `down`, or made of them.
Tensor LatentAttention::queries(Tensor down, const LatentWeights& weights, const LayerStep& step) const {
  const std::int64_t columns = std::int64_t{shape_.num_heads} * shape_.query_dim();
  if (weights.query_up.out_features == 0) return down.column_slice(0, columns);
  const std::int64_t rank = weights.query_up.in_features;
  const Tensor normalized = step.arena.take(down.rows, rank, step.dtypes.activations);
  rmsnorm({.x = down.column_slice(0, rank),
           .weight = weights.query_norm.weight,
           .y = normalized,
           .eps = weights.query_norm.eps},
          step.lane);
  const Tensor q = step.arena.take(down.rows, columns, step.dtypes.intermediates);
  step.strategy.linear(normalized, weights.query_up, LinearRole::qkv, q, step.lane);
  return q;
}

void LatentAttention::block(int layer, const LatentWeights& weights, const Memory& memory,
                            const LayerStep& step) const {
  const Span span(step.lane.stream, "attention", layer);
  const std::int64_t num_tokens = step.tensors.num_tokens;
  const int heads = shape_.num_heads, cached = shape_.cached_dim();
  const PagedKv pages = latent_pages(step, layer);
  const PagedSequences sequences = sequences_of(step.tensors);
  LayerScratch scratch(step);

  const Tensor down = scratch.take(num_tokens, weights.down.out_features, step.dtypes.intermediates);
  step.strategy.linear(step.normalized, weights.down, LinearRole::qkv, down, step.lane);
  const Tensor q = queries(down, weights, step);
  const Tensor latent = down.column_slice(weights.down.out_features - cached, cached);
  const Tensor unrotated = latent.column_slice(0, shape_.latent_dim);
  rmsnorm({.x = unrotated, .weight = weights.latent_norm.weight, .y = unrotated, .eps = weights.latent_norm.eps},
          step.lane);

  const Tensor query = scratch.take(num_tokens, std::int64_t{heads} * cached, step.dtypes.intermediates);
  {
    const Span absorbing(step.lane.stream, "linear");
    head_linear({.x = of_heads(q, heads, shape_.query_dim(), shape_.nope_dim),
                 .x_stride = shape_.query_dim(),
                 .weight = weights.to_latents,
                 .num_heads = heads,
                 .y = of_heads(query, heads, cached, shape_.latent_dim),
                 .y_stride = cached},
                step.lane);
  }
  const std::size_t plan_bytes = plan_bytes_of(step.tensors.limits, heads, step.lane.stream.device());
  void* const plan =
      memory.plans == nullptr ? nullptr : memory.plans + static_cast<std::size_t>(step.part) * plan_bytes;
  if (layer == 0)
    plan_attention({.kv = pages,
                    .sequences = sequences,
                    .num_tokens = num_tokens,
                    .num_heads = heads,
                    .value_dim = shape_.latent_dim,
                    .older_keys = step.older_keys(),
                    .plan = plan,
                    .plan_bytes = plan_bytes},
                   step.lane);
  latent_append({.q = q,
                 .latent = latent,
                 .query = query,
                 .positions = step.tensors.positions,
                 .inv_freq = shape_.inv_freq,
                 .scale = shape_.rope_scale,
                 .num_heads = heads,
                 .rope_dim = shape_.rope_dim,
                 .kv = pages,
                 .sequences = sequences},
                step.lane);
  const Tensor attended = scratch.take(num_tokens, std::int64_t{heads} * cached, step.dtypes.activations);
  {
    const Span attending(step.lane.stream, "attend", layer);
    step.strategy.attention().attend({.q = query,
                                      .y = attended,
                                      .kv = pages,
                                      .sequences = sequences,
                                      .num_heads = heads,
                                      .scale = shape_.score_scale,
                                      .value_dim = shape_.latent_dim,
                                      .older_keys = step.older_keys(),
                                      .scratch = memory.scratch,
                                      .plan = plan},
                                     step.lane);
  }
  const Tensor values = scratch.take(num_tokens, std::int64_t{heads} * shape_.value_dim, step.dtypes.intermediates);
  {
    const Span expanding(step.lane.stream, "linear");
    head_linear({.x = of_heads(attended, heads, cached, shape_.latent_dim),
                 .x_stride = cached,
                 .weight = weights.from_latents,
                 .num_heads = heads,
                 .y = values,
                 .y_stride = shape_.value_dim},
                step.lane);
  }
  step.strategy.linear(values, weights.output, LinearRole::attention_output, step.delta, step.lane);
}

}  // namespace heddle
