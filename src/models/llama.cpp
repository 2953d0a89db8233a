#include "models/llama.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/trace.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/rope_append.h"
#include "kernels/linear/linear.h"
#include "kernels/rows/gather_rows.h"
#include "kernels/rows/rmsnorm.h"
#include "parallel/registry.h"

namespace heddle {
namespace {

// Tensors of a block are scratch: the next block reuses their memory, in stream order.
class Scratch {
 public:
  explicit Scratch(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { arena_.rewind(mark_); }

  Tensor take(std::int64_t rows, std::int64_t columns, DType dtype = DType::float32) {
    return arena_.take(rows, columns, dtype);
  }

 private:
  Arena& arena_;
  std::size_t mark_;
};

std::size_t bytes_per_step(const Llama::Weights& weights) {
  std::size_t bytes = weights.logits.size_bytes();
  for (const Llama::Layer& layer : weights.layers)
    bytes += layer.qkv.size_bytes() + layer.output.size_bytes() + layer.gate_up.size_bytes() + layer.down.size_bytes();
  return bytes;
}

// What a model computes in; residual and logits are float32.
struct LlamaDTypes {
  DType activations, intermediates, deltas;  // Llama's members say of what
};

// On a GPU a bfloat16 delta is a third of what add and norm move; the residual that takes it up is float32, so that it
// is rounded once, where transformers rounds the sum, too. float16 would not do: what some models add is beyond its
// range. `weights`: the dtype of all matrices; float32 where they differ.
LlamaDTypes llama_dtypes(DType weights, Device device, Compute compute) {
  const bool on_cpu = device.kind == DeviceKind::cpu;
  const bool widens = compute == Compute::float32 || (on_cpu && weights == DType::float16);
  const DType activations = widens ? DType::float32 : weights;
  const bool narrow_deltas = !on_cpu && activations == DType::bfloat16;
  return {.activations = activations,
          .intermediates = on_cpu ? DType::float32 : activations,
          .deltas = narrow_deltas ? DType::bfloat16 : DType::float32};
}

LlamaDTypes dtypes_of(const Llama::Weights& weights, Compute compute) {
  const DType dtype = weights.logits.dtype;
  const auto is_same = [&](const Weight& weight) { return weight.dtype == dtype; };
  const bool all = std::ranges::all_of(weights.layers, [&](const Llama::Layer& layer) {
    return is_same(layer.qkv) && is_same(layer.output) && is_same(layer.gate_up) && is_same(layer.down);
  });
  return llama_dtypes(all ? dtype : DType::float32, weights.storage.device, compute);
}

// In place.
void norm_heads(Tensor heads, const Norm& norm, int num_heads, const Lane& lane) {
  rmsnorm({.x = heads, .weight = norm.weight, .y = heads, .eps = norm.eps, .num_heads = num_heads}, lane);
}

PagedKv layer_pages(const KvPages& kv, int layer) {
  return {.keys = kv.keys(layer),
          .values = kv.values(layer),
          .num_kv_heads = kv.num_kv_heads,
          .page_size = kv.page_size,
          .head_dim = kv.head_dim,
          .dtype = kv.dtype};
}

std::vector<NamedRows> with_suffix(std::vector<NamedRows> blocks, std::string_view suffix) {
  for (NamedRows& block : blocks) block.name += suffix;
  return blocks;
}

// A step on a GPU begins with a copy of its arrays, so all that earlier steps wrote is there.
constexpr OlderKeys kOlderKeys = OlderKeys::in_place;

PagedSequences sequences_of(const StepTensors& step) {
  return {.query_start = step.query_start,
          .context_len = step.context_len,
          .page_table = step.page_table,
          .num_sequences = step.num_sequences,
          .page_table_stride = step.page_table_stride,
          .max_query_len = step.max_query_len};
}

std::vector<int> each_once(std::vector<int> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

Llama::Llama(LlamaConfig config, Weights weights, std::unique_ptr<Strategy> strategy, Compute compute)
    : config_(std::move(config)),
      windows_(each_once(config_.windows)),
      weights_(std::move(weights)),
      strategy_(std::move(strategy)),
      activations_(dtypes_of(weights_, compute).activations),
      intermediates_(dtypes_of(weights_, compute).intermediates),
      deltas_(dtypes_of(weights_, compute).deltas),
      rope_scale_(rope_frequencies(config_.rope, config_.head_dim).scale),
      shape_({.num_layers = config_.num_layers,
              .num_kv_heads = num_kv_heads(),
              .head_dim = config_.head_dim,
              .vocab_size = config_.vocab_size,
              .max_context = config_.max_position,
              .eos_ids = config_.eos_ids,
              .dtype = weights_.layers.front().qkv.dtype,
              .weight_bytes_per_step = bytes_per_step(weights_),
              .weight_bytes = weights_.storage.size_bytes}) {}

std::size_t Llama::attention_scratch_bytes(const StepLimits& limits) const {
  if (device().kind == DeviceKind::cpu) return 0;
  return heddle::attention_scratch_bytes(limits.max_tokens, limits.max_sequences, num_heads(), config_.head_dim);
}

// Of one window.
std::size_t Llama::attention_plan_bytes(const StepLimits& limits) const {
  if (device().kind == DeviceKind::cpu) return 0;
  return Arena::rounded(heddle::attention_plan_bytes(limits.max_sequences, num_kv_heads()));
}

Tensor Llama::run(const StepTensors& tensors, const KvPages& kv, Arena& arena, const Lane& given) {
  // First, so that they stand at the same place in every step: attention leaves counters in its scratch.
  void* attention_scratch = arena.take_bytes(attention_scratch_bytes(tensors.limits));
  const std::size_t plans_bytes = windows_.size() * attention_plan_bytes(tensors.limits);
  auto* const attention_plans = static_cast<std::byte*>(arena.take_bytes(plans_bytes));
  const std::size_t workspace_bytes = linear_workspace_bytes(device());
  const Lane lane = given.with({arena.take_bytes(workspace_bytes), workspace_bytes});
  const Tensor residual = arena.take(tensors.num_tokens, config_.hidden, DType::float32);
  const Tensor delta = arena.take(tensors.num_tokens, config_.hidden, deltas_);
  const Step step{.tensors = tensors,
                  .kv = kv,
                  .arena = arena,
                  .lane = lane,
                  .delta = delta,
                  .attention_scratch = attention_scratch,
                  .attention_plans = attention_plans};

  strategy_->embed(weights_.embedding, tensors.tokens, residual, lane);
  Hidden hidden{.residual = residual};
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    hidden = attention_block(layer, hidden, step);
    hidden = feed_forward_block(layer, hidden, step);
  }
  return logits(hidden, step);
}

void* Llama::attention_plan(int window, const Step& step) const {
  if (device().kind == DeviceKind::cpu) return nullptr;
  const auto index = static_cast<std::size_t>(std::ranges::find(windows_, window) - windows_.begin());
  return step.attention_plans + index * attention_plan_bytes(step.tensors.limits);
}

void Llama::plan_attention(const Step& step) {
  for (const int window : windows_)
    heddle::plan_attention({.kv = layer_pages(step.kv, 0),
                            .sequences = sequences_of(step.tensors),
                            .num_tokens = step.tensors.num_tokens,
                            .num_heads = num_heads(),
                            .window = window,
                            .older_keys = kOlderKeys,
                            .plan = attention_plan(window, step),
                            .plan_bytes = attention_plan_bytes(step.tensors.limits)},
                           step.lane);
}

Hidden Llama::attention_block(int layer, Hidden hidden, const Step& step) {
  const Span span(step.lane.stream, "attention", layer);
  const Layer& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const std::int64_t num_tokens = hidden.residual.rows;
  const std::int64_t heads = std::int64_t{num_heads()} * config_.head_dim;
  const std::int64_t kv_heads = std::int64_t{num_kv_heads()} * config_.head_dim;
  const PagedKv pages = layer_pages(step.kv, layer);
  const PagedSequences sequences = sequences_of(step.tensors);
  Scratch scratch(step.arena);

  const Tensor x = scratch.take(num_tokens, config_.hidden, activations_);
  strategy_->normalize(hidden, weights.attention_norm, x, step.lane);
  const Tensor qkv = scratch.take(num_tokens, heads + 2 * kv_heads, intermediates_);
  strategy_->linear(x, weights.qkv, LinearRole::qkv, qkv, step.lane);
  const Tensor q = qkv.column_slice(0, heads);
  const Tensor k = qkv.column_slice(heads, kv_heads);
  const Tensor v = qkv.column_slice(heads + kv_heads, kv_heads);

  if (config_.qk_norm) {
    norm_heads(q, weights.query_norm, num_heads(), step.lane);
    norm_heads(k, weights.key_norm, num_kv_heads(), step.lane);
  }
  if (layer == 0) plan_attention(step);
  rope_append({.q = q,
               .k = k,
               .v = v,
               .positions = step.tensors.positions,
               .inv_freq = weights_.inv_freq,
               .scale = rope_scale_,
               .kv = pages,
               .sequences = sequences,
               .older_keys = kOlderKeys},
              step.lane);
  const Tensor attended = scratch.take(num_tokens, heads, activations_);
  const int window = config_.windows[static_cast<std::size_t>(layer)];
  {
    const Span attending(step.lane.stream, "attend", layer);
    attention({.q = q,
               .y = attended,
               .kv = pages,
               .sequences = sequences,
               .num_heads = num_heads(),
               .scale = 1 / std::sqrt(static_cast<float>(config_.head_dim)),
               .window = window,
               .older_keys = kOlderKeys,
               .scratch = step.attention_scratch,
               .plan = attention_plan(window, step)},
              step.lane);
  }
  strategy_->linear(attended, weights.output, LinearRole::attention_output, step.delta, step.lane);
  return {.residual = hidden.residual, .delta = step.delta};
}

Hidden Llama::feed_forward_block(int layer, Hidden hidden, const Step& step) {
  const Span span(step.lane.stream, "feed_forward", layer);
  const Layer& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const std::int64_t num_tokens = hidden.residual.rows, intermediate = weights_.split.intermediate.count;
  Scratch scratch(step.arena);

  const Tensor x = scratch.take(num_tokens, config_.hidden, activations_);
  strategy_->normalize(hidden, weights.feed_forward_norm, x, step.lane);
  const Tensor gate_up = scratch.take(num_tokens, 2 * intermediate, intermediates_);
  const Tensor gated = scratch.take(num_tokens, intermediate, activations_);
  strategy_->linear_swiglu(x, weights.gate_up, gate_up, gated, step.lane);
  strategy_->linear(gated, weights.down, LinearRole::down, step.delta, step.lane);
  return {.residual = hidden.residual, .delta = step.delta};
}

Tensor Llama::logits(Hidden hidden, const Step& step) {
  const Span span(step.lane.stream, "logits");
  const int num_rows = step.tensors.num_logit_rows;
  const auto wanted_rows = [&](Tensor x) {
    if (num_rows == x.rows) return x;  // rows ascend, so they are all (step_plan.h, validate)
    const Tensor rows = step.arena.take(num_rows, config_.hidden, x.dtype);
    gather_rows({.x = x, .rows = step.tensors.logit_rows, .y = rows}, step.lane);
    return rows;
  };
  const Hidden last{.residual = wanted_rows(hidden.residual), .delta = wanted_rows(hidden.delta)};
  const Tensor x = step.arena.take(num_rows, config_.hidden, activations_);
  strategy_->normalize(last, weights_.final_norm, x, step.lane);
  const Tensor result = step.arena.take(num_rows, config_.vocab_size, DType::float32);
  strategy_->logits(x, weights_.logits, result, step.lane);
  return result;
}

Llama::Weights load_llama_weights(const ModelSource& source, const LlamaConfig& config, const LoadOptions& options) {
  const TensorSplit split = tensor_split({.num_heads = config.num_heads,
                                          .num_kv_heads = config.num_kv_heads,
                                          .intermediate = config.intermediate,
                                          .vocab_size = config.vocab_size},
                                         options.place.rank, options.place.ranks);
  const Slice query_rows = split.heads.times(config.head_dim), kv_rows = split.kv_heads.times(config.head_dim);
  WeightLoaderOptions loading{.device = options.device, .dtype = options.dtype, .on_progress = options.on_progress};
  if (options.place.ranks > 1) loading.reserved_bytes = 0;  // not all of the source's tensors
  WeightLoader loader(source, std::move(loading));

  const auto extent = [](std::int64_t size, std::string_view field) {
    return Extent{size, fmt::format("{} in config.json is {}", field, size)};
  };
  const auto heads_extent = [&](int num_heads, std::string_view field) {
    return Extent{std::int64_t{num_heads} * config.head_dim,
                  fmt::format("{} in config.json is {} and head_dim {}", field, num_heads, config.head_dim)};
  };
  const Extent hidden = extent(config.hidden, "hidden_size");
  const Extent intermediate = extent(config.intermediate, "intermediate_size");
  const Extent vocab = extent(config.vocab_size, "vocab_size");
  const Extent heads = heads_extent(config.num_heads, "num_attention_heads");
  const Extent kv_heads = heads_extent(config.num_kv_heads, "num_key_value_heads");
  const Extent head_dim{config.head_dim, fmt::format("head_dim is {}", config.head_dim)};
  const auto norm = [&](const std::string& name, const Extent& size) {
    return Norm{.weight = loader.vector(name, size), .eps = static_cast<float>(config.rms_norm_eps)};
  };
  const auto rows_of = [](const std::string& name, const Extent& rows, Slice slice) {
    return NamedRows{.name = name, .rows = rows, .first = slice.first, .count = slice.count};
  };
  // y = x W^T + b: this rank's rows of tensors NAME.weight [rows, in_features], stacked, and where `bias` says so of
  // NAME.bias [rows].
  const auto projection = [&](bool bias, const std::vector<NamedRows>& blocks) {
    Weight weight = loader.matrix(with_suffix(blocks, ".weight"), hidden);
    if (!bias) return weight;
    const std::vector<NamedRows> biases = with_suffix(blocks, ".bias");
    weight.bias = loader.vector(biases);
    weight.bias_dtype = loader.stored_dtype(biases);
    return weight;
  };
  // The same back to the hidden size, of this rank's columns of NAME.weight [hidden, in_features]: the ranks' products
  // add up, and one of them has the bias.
  const auto back = [&](bool bias, const std::string& name, const Extent& in_features, Slice columns) {
    const NamedRows weights{.name = name + ".weight", .rows = hidden}, biases{.name = name + ".bias", .rows = hidden};
    Weight weight = loader.matrix({&weights, 1}, in_features, columns);
    if (!bias) return weight;
    weight.bias_dtype = loader.stored_dtype({&biases, 1});
    if (split.adds_biases_of_sums()) weight.bias = loader.vector({&biases, 1});
    return weight;
  };

  Llama::Weights weights;
  weights.embedding = loader.matrix(rows_of("model.embed_tokens.weight", vocab, split.vocabulary), hidden);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    Llama::Layer layer;
    layer.attention_norm = norm(prefix + "input_layernorm.weight", hidden);
    layer.qkv = projection(config.qkv_bias, {rows_of(attention + "q_proj", heads, query_rows),
                                             rows_of(attention + "k_proj", kv_heads, kv_rows),
                                             rows_of(attention + "v_proj", kv_heads, kv_rows)});
    if (config.qk_norm) {
      layer.query_norm = norm(attention + "q_norm.weight", head_dim);
      layer.key_norm = norm(attention + "k_norm.weight", head_dim);
    }
    layer.output = back(config.output_bias, attention + "o_proj", heads, query_rows);
    layer.feed_forward_norm = norm(prefix + "post_attention_layernorm.weight", hidden);
    layer.gate_up = projection(config.mlp_bias, {rows_of(mlp + "gate_proj", intermediate, split.intermediate),
                                                 rows_of(mlp + "up_proj", intermediate, split.intermediate)});
    layer.down = back(config.mlp_bias, mlp + "down_proj", intermediate, split.intermediate);
    weights.layers.push_back(layer);
  }
  weights.inv_freq = loader.constants(rope_frequencies(config.rope, config.head_dim).inv_freq);
  weights.final_norm = norm("model.norm.weight", hidden);
  weights.logits = config.tie_embeddings ? weights.embedding
                                         : loader.matrix(rows_of("lm_head.weight", vocab, split.vocabulary), hidden);

  // Old converters stored the frequencies, and a copy of the tied embedding; neither says anything new.
  constexpr std::string_view kHarmless[] = {"rotary_emb.inv_freq", "lm_head.weight"};
  weights.split = split;
  weights.storage = loader.finish(std::span(kHarmless).first(config.tie_embeddings ? 2 : 1));
  return weights;
}

std::unique_ptr<Model> load_llama(const ModelSource& source, const LoadOptions& options) {
  const LlamaConfig config = parse_llama_config(source.config());
  Llama::Weights weights = load_llama_weights(source, config, options);
  std::unique_ptr<Strategy> strategy = make_strategy(options.place, weights.split, config.vocab_size);
  return std::make_unique<Llama>(config, std::move(weights), std::move(strategy), options.compute);
}

}  // namespace heddle
