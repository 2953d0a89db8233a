#include "layers/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/trace.h"
#include "fused/decode_block.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/rope_kv_write.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
namespace {

// In place.
void norm_heads(Tensor heads, const Norm& norm, int num_heads, const Lane& lane) {
  rmsnorm({.x = heads, .weight = norm.weight, .y = heads, .eps = norm.eps, .num_heads = num_heads}, lane);
}

constexpr KeyValuePlanes kPlanes{.keys = 0, .values = 1};

// Without the lane's SMs, which a step knows.
DecodeBlockMapping mapping_of(const DecodeChoice& choice, int num_sms) {
  if (choice.form == DecodeChoice::Form::streamed) return {.streamed_blocks = num_sms};
  // The fastest of all mappings at small batches (docs/notes/cluster.md).
  return {.cluster = choice.cluster,
          .parts = choice.parts,
          .prefetch = DecodePrefetch::none,
          .norm = DecodeNorm::every_block};
}

// What scratch is reserved for.
constexpr int kMostStreamedBlocks = 160;

std::vector<int> each_once(std::vector<int> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

Attention::Attention(AttentionShape shape) : shape_(std::move(shape)), windows_(each_once(shape_.windows)) {}

// Of one window.
std::size_t Attention::plan_bytes(const StepLimits& limits, Device device) const {
  if (device.kind == DeviceKind::cpu) return 0;
  return Arena::rounded(attention_plan_bytes(limits.max_sequences, shape_.num_kv_heads));
}

Attention::Memory Attention::take_memory(const StepLimits& limits, Arena& arena, Device device) const {
  const bool on_cpu = device.kind == DeviceKind::cpu;
  const std::size_t scratch_bytes =
      on_cpu ? 0 : attention_scratch_bytes(limits.max_tokens, limits.max_sequences, shape_.num_heads, shape_.head_dim);
  Memory memory;
  memory.scratch = arena.take_bytes(scratch_bytes);
  memory.plans = static_cast<std::byte*>(
      arena.take_bytes(static_cast<std::size_t>(limits.max_parts) * windows_.size() * plan_bytes(limits, device)));
  memory.decode_scratch = arena.take_bytes(decode_scratch_bytes(limits));
  return memory;
}

DecodeBlockShape Attention::decode_shape(int num_tokens) const {
  return {.tokens = num_tokens,
          .hidden = shape_.hidden,
          .heads = shape_.num_heads,
          .kv_heads = shape_.num_kv_heads,
          .head_dim = shape_.head_dim};
}

// Of every choice: the same in all steps, so that its counters stay where they are.
std::size_t Attention::decode_scratch_bytes(const StepLimits& limits) const {
  if (!limits.fused_decode) return 0;
  DecodeBlockShape shape = decode_shape(std::min(limits.max_sequences, static_cast<int>(kMostBlockTokens)));
  shape.mapping = {.parts = shape.group(), .streamed_blocks = kMostStreamedBlocks};
  return decode_block_scratch_bytes(shape);
}

std::string Attention::why_not_fused(const FusedDecode& decode, FunctionRef<const AttentionWeights&(int layer)> weights,
                                     const LayerDTypes& dtypes, const Strategy& strategy, Device device) const {
  const DType dtype = weights(0).qkv.dtype;
  for (int layer = 0; layer < static_cast<int>(shape_.windows.size()); ++layer)
    if (weights(layer).qkv.dtype != dtype || weights(layer).output.dtype != dtype)
      return "weights of attention have several dtypes";
  if (std::string why = why_not_in_one(dtype, dtypes, strategy); !why.empty()) return why;
  if (decode.num_sms > kMostStreamedBlocks)
    return fmt::format("{} SMs, it takes up to {}", decode.num_sms, kMostStreamedBlocks);
  DecodeBlockShape shape = decode_shape(decode.num_tokens);
  shape.page_size = decode.page_size;
  shape.mapping = mapping_of(decode.choice, decode.num_sms);
  return why_not_fused_on(shape, dtype, device, decode.num_sms);
}

void* Attention::plan_of(int window, const Memory& memory, const LayerStep& step) const {
  const Device device = step.lane.stream.device();
  if (device.kind == DeviceKind::cpu) return nullptr;
  const auto index = static_cast<std::size_t>(std::ranges::find(windows_, window) - windows_.begin());
  const std::size_t earlier = static_cast<std::size_t>(step.part) * windows_.size();
  return memory.plans + (earlier + index) * plan_bytes(step.tensors.limits, device);
}

void Attention::plan(const Memory& memory, const LayerStep& step) const {
  for (const int window : windows_)
    plan_attention({.kv = pages_of(step, 0, kPlanes),
                    .sequences = sequences_of(step.tensors),
                    .num_tokens = step.tensors.num_tokens,
                    .num_heads = shape_.num_heads,
                    .window = window,
                    .older_keys = step.older_keys(),
                    .plan = plan_of(window, memory, step),
                    .plan_bytes = plan_bytes(step.tensors.limits, step.lane.stream.device())},
                   step.lane);
}

void Attention::block(int layer, const AttentionWeights& weights, const Memory& memory, const LayerStep& step) const {
  const Span span(step.lane.stream, "attention", layer);
  const std::int64_t num_tokens = step.tensors.num_tokens;
  const std::int64_t heads = std::int64_t{shape_.num_heads} * shape_.head_dim;
  const std::int64_t kv_heads = std::int64_t{shape_.num_kv_heads} * shape_.head_dim;
  const PagedKv pages = pages_of(step, layer, kPlanes);
  const PagedSequences sequences = sequences_of(step.tensors);
  LayerScratch scratch(step);

  const Tensor qkv = scratch.take(num_tokens, heads + 2 * kv_heads, step.dtypes.intermediates);
  step.strategy.linear(step.normalized, weights.qkv, LinearRole::qkv, qkv, step.lane);
  const Tensor q = qkv.column_slice(0, heads);
  const Tensor k = qkv.column_slice(heads, kv_heads);
  const Tensor v = qkv.column_slice(heads + kv_heads, kv_heads);

  if (weights.query_norm.weight != nullptr) norm_heads(q, weights.query_norm, shape_.num_heads, step.lane);
  if (weights.key_norm.weight != nullptr) norm_heads(k, weights.key_norm, shape_.num_kv_heads, step.lane);
  if (layer == 0) plan(memory, step);
  rope_kv_write({.q = q,
                 .k = k,
                 .v = v,
                 .positions = step.tensors.positions,
                 .inv_freq = shape_.inv_freq,
                 .scale = shape_.rope_scale,
                 .kv = pages,
                 .sequences = sequences,
                 .older_keys = step.older_keys()},
                step.lane);
  const Tensor attended = scratch.take(num_tokens, heads, step.dtypes.activations);
  const int window = shape_.windows[static_cast<std::size_t>(layer)];
  {
    const Span attending(step.lane.stream, "attend", layer);
    step.strategy.attention().attend({.q = q,
                                      .y = attended,
                                      .kv = pages,
                                      .sequences = sequences,
                                      .num_heads = shape_.num_heads,
                                      .scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim)),
                                      .window = window,
                                      .older_keys = step.older_keys(),
                                      .scratch = memory.scratch,
                                      .plan = plan_of(window, memory, step)},
                                     step.lane);
  }
  step.strategy.linear(attended, weights.output, LinearRole::attention_output, step.delta, step.lane);
}

void Attention::decode(int layer, const AttentionWeights& weights, const Memory& memory, const Hidden& before,
                       const Hidden& after, const LayerStep& step) const {
  const Span span(step.lane.stream, "attention", layer);
  auto params = fused_operands<DecodeBlockParams>(weights.norm, before, after, step);
  params.qkv = weights.qkv;
  params.query_norm = static_cast<const float*>(weights.query_norm.weight);
  params.key_norm = static_cast<const float*>(weights.key_norm.weight);
  params.inv_freq = shape_.inv_freq;
  params.rope_scale = shape_.rope_scale;
  params.kv = pages_of(step, layer, kPlanes);
  params.num_heads = shape_.num_heads;
  params.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
  params.window = shape_.windows[static_cast<std::size_t>(layer)];
  params.output = weights.output;
  params.mapping = mapping_of(step.tensors.choices.decode, step.lane.num_sms);
  params.scratch = memory.decode_scratch;
  params.scratch_bytes = decode_scratch_bytes(step.tensors.limits);
  decode_block(params, step.lane);
}

}  // namespace heddle
