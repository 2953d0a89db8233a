#include "layers/latent_attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/checked.h"
#include "base/trace.h"
#include "fused/latent_block/latent_block.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/expanded_attention.h"
#include "kernels/attention/gather_latents.h"
#include "kernels/attention/latent_kv_write.h"
#include "kernels/linear/head_linear.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
namespace {

// Of one head, whose keys and values are the same rows.
constexpr KeyValuePlanes kLatents{.keys = 0, .values = 0};

std::size_t plan_bytes_of(const StepLimits& limits, int num_heads, Device device) {
  if (device.kind == DeviceKind::cpu) return 0;
  return Arena::rounded(latent_plan_bytes(limits.max_tokens, limits.max_sequences, num_heads));
}

// The first `width` columns of each of `num_heads` heads that lie `stride` apart, as head_linear() takes them.
Tensor of_heads(Tensor rows, int num_heads, std::int64_t stride, std::int64_t width) {
  return rows.column_slice(0, (num_heads - 1) * stride + width);
}

}  // namespace

int LatentShape::piece_keys(Device device) const {
  if (device.kind == DeviceKind::cpu) return kPieceKeys;
  // 128 MB of keys and values of 16 bits. A border of pieces costs a GPU more than memory does: the state is written and
  // read.
  const int of_memory = (128 << 20) / (num_heads * expanded_dim() * 2);
  return std::clamp(of_memory / kExpandedBlockKeys * kExpandedBlockKeys, kPieceKeys, 4 * kPieceKeys);
}

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
  memory.decode_scratch = arena.take_bytes(decode_scratch_bytes(limits, device));
  return memory;
}

LatentBlockShape LatentAttention::decode_shape(int num_tokens, const DecodeChoice& choice, Device device) const {
  const bool on_cpu = device.kind == DeviceKind::cpu;
  return {.tokens = num_tokens,
          .hidden = shape_.hidden,
          .heads = shape_.num_heads,
          .nope_dim = shape_.nope_dim,
          .rope_dim = shape_.rope_dim,
          .value_dim = shape_.value_dim,
          .latent_dim = shape_.latent_dim,
          .mapping = on_cpu ? latent_mapping_of_cpu(shape_.num_heads)
                            : latent_mapping_of_gpu(shape_.num_heads, num_tokens, choice.cluster)};
}

// Of every choice and dtype: the same in all steps, so that its counters stay where they are.
std::size_t LatentAttention::decode_scratch_bytes(const StepLimits& limits, Device device) const {
  if (!limits.fused_decode) return 0;
  std::size_t bytes = 0;
  for (int tokens = 1; tokens <= std::min(limits.max_sequences, kMostLatentTokens); ++tokens)
    bytes = std::max(bytes, latent_block_scratch_bytes(decode_shape(tokens, {}, device), DType::float32));
  return bytes;
}

std::string LatentAttention::why_not_fused(const FusedDecode& decode,
                                           FunctionRef<const LatentWeights&(int layer)> weights,
                                           const LayerDTypes& dtypes, const Strategy& strategy, Device device) const {
  if (weights(0).query_up.out_features > 0)
    return "queries have a latent of their own (q_lora_rank), the fused block of latent attention takes none";
  const DType dtype = weights(0).down.dtype;
  for (int layer = 0; layer < shape_.num_layers; ++layer)
    for (const Weight* matrix :
         {&weights(layer).down, &weights(layer).to_latents, &weights(layer).from_latents, &weights(layer).output})
      if (matrix->dtype != dtype) return "weights of attention have several dtypes";
  if (std::string why = why_not_in_one(dtype, dtypes, strategy); !why.empty()) return why;
  if (decode.choice.form != DecodeChoice::Form::clusters) return "latent attention has no streamed form";
  if (decode.choice.parts != 1)
    return fmt::format("{} parts of the query heads, latent attention has a cluster for each", decode.choice.parts);
  LatentBlockShape shape = decode_shape(decode.num_tokens, decode.choice, device);
  shape.mapping.cluster = decode.choice.cluster;  // the CPU's own is 1 whatever was chosen
  return why_not_fused_on(shape, dtype, device, decode.num_sms);
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

// What the block's functions share.
struct LatentAttention::Block {
  int layer;
  const LatentWeights& weights;
  const Memory& memory;
  const LayerStep& step;
  PagedKv pages;
  Tensor q;       // [num_tokens, num_heads * query_dim], not rotated
  Tensor latent;  // [num_tokens, cached_dim], normalized; the key not rotated
  Tensor values;  // [num_tokens, num_heads * value_dim]: what the block makes
};

// Queries in the latents and what attention makes of them: [rows, num_heads * cached_dim].
struct LatentAttention::AbsorbedTensors {
  Tensor query, attended;
};

// Of a piece: [keys, cached_dim], and the keys and values of all heads that they make.
struct LatentAttention::ExpandedTensors {
  Tensor latents, keys_values;
};

int LatentAttention::most_absorbed(const AttentionStrategy& attention, const LayerDTypes& dtypes, Device device) const {
  // Latents that other ranks have are not here to be expanded.
  const bool here =
      attention.shard().ranks == 1 && why_not_expanded(shape_.expanded_head(), dtypes.intermediates, device).empty();
  return here ? shape_.most_absorbed() : std::numeric_limits<int>::max();
}

void LatentAttention::block(int layer, const LatentWeights& weights, const Memory& memory,
                            const LayerStep& step) const {
  const Span span(step.lane.stream, "attention", layer);
  const std::int64_t num_tokens = step.tensors.num_tokens;
  LayerScratch scratch(step);
  const Tensor down = scratch.take(num_tokens, weights.down.out_features, step.dtypes.intermediates);
  step.strategy.linear(step.normalized, weights.down, LinearRole::qkv, down, step.lane);
  const Tensor q = queries(down, weights, step);
  const Tensor latent = down.column_slice(weights.down.out_features - shape_.cached_dim(), shape_.cached_dim());
  const Tensor unrotated = latent.column_slice(0, shape_.latent_dim);
  rmsnorm({.x = unrotated, .weight = weights.latent_norm.weight, .y = unrotated, .eps = weights.latent_norm.eps},
          step.lane);
  const Block block{
      .layer = layer,
      .weights = weights,
      .memory = memory,
      .step = step,
      .pages = pages_of(step, layer, kLatents),
      .q = q,
      .latent = latent,
      .values = scratch.take(num_tokens, std::int64_t{shape_.num_heads} * shape_.value_dim, step.dtypes.intermediates)};
  const int most = most_absorbed(step.strategy.attention(), step.dtypes, step.lane.stream.device());
  const StepLimits& limits = step.tensors.limits;
  const int longest = limits.max_pages_per_sequence * step.kv.page_size;
  if (step.lane.dry_run != nullptr && step.tensors.max_query_len > most) reserve_others(most, longest, step);
  const LatentLimits runs{
      .most_absorbed = most, .longest_context = longest, .piece_keys = shape_.piece_keys(step.lane.stream.device())};
  for_each_run(step.tensors, runs, [&](const LatentRun& run) {
    run.way == LatentWay::absorbed ? absorbed(run, block) : expanded(run, block);
  });
  step.strategy.linear(block.values, weights.output, LinearRole::attention_output, step.delta, step.lane);
}

// In a dry run: other steps of as many tokens may take more memory than one with the longest sequence.
void LatentAttention::reserve_others(int most_absorbed, int longest, const LayerStep& step) const {
  const StepLimits& limits = step.tensors.limits;
  const std::int64_t num_tokens = step.tensors.num_tokens;
  {  // Short sequences, and some that are computed by themselves, with a plan of their own.
    const LayerScratch scratch(step);
    take_absorbed(std::min<std::int64_t>(num_tokens, std::int64_t{most_absorbed} * limits.max_sequences), step);
    step.arena.take_bytes(plan_bytes_of(limits, shape_.num_heads, step.lane.stream.device()));
  }
  // Several long ones, which have more keys than the longest.
  const LayerScratch scratch(step);
  const std::int64_t sequences = std::min<std::int64_t>(limits.max_sequences, num_tokens / (most_absorbed + 1));
  take_expanded(sequences * round_up(std::int64_t{longest}, std::int64_t{kExpandedBlockKeys}), step);
}

LatentAttention::AbsorbedTensors LatentAttention::take_absorbed(std::int64_t num_rows, const LayerStep& step) const {
  const std::int64_t columns = std::int64_t{shape_.num_heads} * shape_.cached_dim();
  return {.query = step.arena.take(num_rows, columns, step.dtypes.intermediates),
          .attended = step.arena.take(num_rows, columns, step.dtypes.activations)};
}

// Extends the cache by the tokens of `sequences`, whose rows begin at `first_row`, and rotates their queries.
void LatentAttention::write_cache(const PagedSequences& sequences, std::int64_t first_row, Tensor q, Tensor query,
                                  const Block& block) const {
  latent_kv_write({.q = q,
                   .latent = block.latent.row_slice(first_row, q.rows),
                   .query = query,
                   .positions = block.step.tensors.positions + first_row,
                   .inv_freq = shape_.inv_freq,
                   .scale = shape_.rope_scale,
                   .num_heads = shape_.num_heads,
                   .rope_dim = shape_.rope_dim,
                   .kv = block.pages,
                   .sequences = sequences,
                   .older_keys = block.step.older_keys()},
                  block.step.lane);
}

// The plan of a run's attention; on the CPU there is none. The block of layer 0 plans the step's first sequences for all
// layers. Each block plans sequences by themselves, in memory of its own.
void* LatentAttention::plan_of(const LatentRun& run, const Block& block) const {
  const LayerStep& step = block.step;
  const std::size_t plan_bytes = plan_bytes_of(step.tensors.limits, shape_.num_heads, step.lane.stream.device());
  void* plan = nullptr;
  if (block.memory.plans != nullptr)
    plan = run.by_itself ? step.arena.take_bytes(plan_bytes)
                         : block.memory.plans + static_cast<std::size_t>(step.part) * plan_bytes;
  if (block.layer == 0 || run.by_itself)
    plan_attention({.kv = block.pages,
                    .sequences = run.sequences,
                    .num_tokens = run.num_rows,
                    .num_heads = shape_.num_heads,
                    .value_dim = shape_.latent_dim,
                    .older_keys = run.by_itself ? OlderKeys::in_flight : step.older_keys(),
                    .plan = plan,
                    .plan_bytes = plan_bytes},
                   step.lane);
  return plan;
}

void LatentAttention::absorbed(const LatentRun& run, const Block& block) const {
  const LayerStep& step = block.step;
  const int heads = shape_.num_heads, cached = shape_.cached_dim();
  const LayerScratch scratch(step);
  const auto [query, attended] = take_absorbed(run.num_rows, step);
  const Tensor q = block.q.row_slice(run.first_row, run.num_rows);
  {
    const Span absorbing(step.lane.stream, "linear");
    head_linear({.x = of_heads(q, heads, shape_.query_dim(), shape_.nope_dim),
                 .x_stride = shape_.query_dim(),
                 .weight = block.weights.to_latents,
                 .num_heads = heads,
                 .y = of_heads(query, heads, cached, shape_.latent_dim),
                 .y_stride = cached},
                step.lane);
  }
  void* const plan = plan_of(run, block);
  write_cache(run.sequences, run.first_row, q, query, block);
  {
    const Span attending(step.lane.stream, "attend", block.layer);
    step.strategy.attention().attend({.q = query,
                                      .y = attended,
                                      .kv = block.pages,
                                      .sequences = run.sequences,
                                      .num_heads = heads,
                                      .scale = shape_.score_scale,
                                      .value_dim = shape_.latent_dim,
                                      .older_keys = step.older_keys(),
                                      .scratch = block.memory.scratch,
                                      .plan = plan},
                                     step.lane);
  }
  const Span expanding(step.lane.stream, "linear");
  head_linear({.x = of_heads(attended, heads, cached, shape_.latent_dim),
               .x_stride = cached,
               .weight = block.weights.from_latents,
               .num_heads = heads,
               .y = block.values.row_slice(run.first_row, run.num_rows),
               .y_stride = shape_.value_dim},
              step.lane);
}

LatentAttention::ExpandedTensors LatentAttention::take_expanded(std::int64_t num_keys, const LayerStep& step) const {
  const std::int64_t most = std::min<std::int64_t>(num_keys, shape_.piece_keys(step.lane.stream.device()));
  return {.latents = step.arena.take(most, shape_.cached_dim(), step.dtypes.activations),
          .keys_values =
              step.arena.take(most, std::int64_t{shape_.num_heads} * shape_.expanded_dim(), step.dtypes.intermediates)};
}

// The keys and values of a piece come from the cache, also those of the run's own tokens: so a token's keys are the same
// numbers whichever chunk it came with. One sequence may have several pieces; several have one.
void LatentAttention::expanded(const LatentRun& run, const Block& block) const {
  const LayerStep& step = block.step;
  const int heads = shape_.num_heads;
  const LayerScratch scratch(step);
  for (int i = 0; i < run.expanded.count; ++i) {
    const Tensor q = block.q.row_slice(run.first_row_of(i), run.expanded[i].num_tokens);
    write_cache(run.alone(i), run.first_row_of(i), q, q, block);
  }
  const auto num_keys = static_cast<int>(run.expanded.num_key_rows());
  const int of_piece = shape_.piece_keys(step.lane.stream.device());
  const auto [latents, expanded] = take_expanded(num_keys, step);
  float* state = nullptr;
  if (num_keys > of_piece)
    state = static_cast<float*>(
        step.arena.take_bytes(expanded_state_floats(run.num_rows, heads, shape_.value_dim) * sizeof(float)));
  for (int first = 0; first < num_keys; first += of_piece) {
    const int count = std::min(of_piece, num_keys - first);
    ExpandedSequences piece = run.expanded;
    if (state != nullptr) piece.of[0].num_keys = count;
    const Tensor rows = latents.row_slice(0, count), keys_values = expanded.row_slice(0, count);
    gather_latents({.kv = block.pages,
                    .page_table = run.sequences.page_table,
                    .page_table_stride = run.sequences.page_table_stride,
                    .first = first,
                    .sequences = piece,
                    .rows = rows},
                   step.lane);
    step.strategy.linear(rows.column_slice(0, shape_.latent_dim), block.weights.expansion, LinearRole::alone,
                         keys_values, step.lane);
    const Span attending(step.lane.stream, "attend", block.layer);
    expanded_attention({.q = block.q.row_slice(run.first_row, run.num_rows),
                        .keys_values = keys_values,
                        .shared_keys = rows.column_slice(shape_.latent_dim, shape_.rope_dim),
                        .y = block.values.row_slice(run.first_row, run.num_rows),
                        .sequences = piece,
                        .num_heads = heads,
                        .value_dim = shape_.value_dim,
                        .scale = shape_.score_scale,
                        .first_key = first,
                        .before = first == 0 ? nullptr : state,
                        .after = first + count == num_keys ? nullptr : state},
                       step.lane);
  }
}

void LatentAttention::decode(int layer, const LatentWeights& weights, const Memory& memory, const Hidden& before,
                             const Hidden& after, const LayerStep& step) const {
  // A dry run measures before anybody asks why_not_fused(), and the operator takes nothing of the arena.
  if (step.lane.dry_run != nullptr && weights.query_up.out_features > 0) return;
  const Span span(step.lane.stream, "attention", layer);
  const Device device = step.lane.stream.device();
  auto params = fused_operands<LatentBlockParams>(weights.norm, before, after, step);
  params.down = weights.down;
  params.latent_norm = static_cast<const float*>(weights.latent_norm.weight);
  params.latent_eps = weights.latent_norm.eps;
  params.to_latents = weights.to_latents;
  params.inv_freq = shape_.inv_freq;
  params.rope_scale = shape_.rope_scale;
  params.kv = pages_of(step, layer, kLatents);
  params.num_heads = shape_.num_heads;
  params.nope_dim = shape_.nope_dim;
  params.rope_dim = shape_.rope_dim;
  params.value_dim = shape_.value_dim;
  params.scale = shape_.score_scale;
  params.from_latents = weights.from_latents;
  params.output = weights.output;
  params.mapping = decode_shape(step.tensors.num_tokens, step.tensors.choices.decode, device).mapping;
  params.scratch = memory.decode_scratch;
  params.scratch_bytes = decode_scratch_bytes(step.tensors.limits, device);
  latent_block(params, step.lane);
}

}  // namespace heddle
