#include "models/llama.h"

#include <fmt/format.h>

#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "layers/layer_loader.h"
#include "parallel/registry.h"

namespace heddle {
namespace {

// What every step multiplies by.
std::vector<Weight> matrices(const Llama::Weights& weights) {
  std::vector<Weight> all{weights.head.logits};
  for (const Llama::Layer& layer : weights.layers)
    all.insert(all.end(), {layer.attention.qkv, layer.attention.output, layer.feed_forward.gated.gate_up,
                           layer.feed_forward.gated.down});
  return all;
}

std::size_t bytes_of(std::span<const Weight> matrices) {
  return std::accumulate(matrices.begin(), matrices.end(), std::size_t{0},
                         [](std::size_t sum, const Weight& matrix) { return sum + matrix.size_bytes(); });
}

AttentionShape attention_shape(const LlamaConfig& config, const Llama::Weights& weights) {
  return {.hidden = static_cast<int>(config.hidden),
          .num_heads = weights.split.num_heads(),
          .num_kv_heads = weights.split.num_kv_heads(),
          .head_dim = config.head_dim,
          .windows = config.windows,
          .inv_freq = weights.inv_freq,
          .rope_scale = rope_frequencies(config.rope, config.head_dim).scale};
}

}  // namespace

Llama::Llama(const LlamaConfig& config, Weights weights, std::unique_ptr<Strategy> strategy, Compute compute)
    : hidden_(config.hidden),
      weights_(std::move(weights)),
      strategy_(std::move(strategy)),
      attention_(attention_shape(config, weights_)),
      dtypes_(layer_dtypes(common_dtype(matrices(weights_)), weights_.storage.device, compute)),
      shape_({.num_layers = config.num_layers,
              .kv = keys_and_values(weights_.split.num_kv_heads(), config.head_dim,
                                    weights_.layers.front().attention.qkv.dtype),
              .shard = strategy_->attention().shard(),
              .vocab_size = config.vocab_size,
              .max_context = config.max_position,
              .eos_ids = config.eos_ids,
              .dtype = weights_.layers.front().attention.qkv.dtype,
              .weight_bytes_per_step = bytes_of(matrices(weights_)),
              .weight_bytes = weights_.storage.size_bytes,
              .delta_bytes_per_token = static_cast<std::size_t>(hidden_) * size_of(dtypes_.deltas)}) {}

std::string Llama::why_not_fused(const FusedDecode& decode) const {
  if (!weights_.split.equal_heads) return "ranks have different numbers of heads";
  const auto weights = [this](int layer) -> const AttentionWeights& {
    return weights_.layers[static_cast<std::size_t>(layer)].attention;
  };
  return attention_.why_not_fused(decode, weights, dtypes_, *strategy_, device());
}

Tensor Llama::run(const StepTensors& tensors, const KvPages& kv, Arena& arena, const Execution& execution) {
  const Attention::Memory memory = attention_.take_memory(tensors.limits, arena, device());
  const LayerStep step = begin_step(*strategy_, tensors, kv, arena, execution, dtypes_, hidden_);
  embed(weights_.embedding, step);
  const auto layer_of = [&](int block) -> const Layer& { return weights_.layers[static_cast<std::size_t>(block / 2)]; };
  const auto is_attention = [](int block) { return block % 2 == 0; };
  const auto norm = [&](int block) {
    return is_attention(block) ? layer_of(block).attention.norm : layer_of(block).feed_forward.norm;
  };
  const auto compute = [&](int block, const LayerStep& part) {
    const int layer = block / 2;
    if (is_attention(block)) return attention_.block(layer, layer_of(block).attention, memory, part);
    feed_forward(layer, layer_of(block).feed_forward, part);
  };
  const auto fused = [&](int block, const Hidden& before, const Hidden& after) {
    attention_.decode(block / 2, layer_of(block).attention, memory, before, after, step);
  };
  const int blocks = 2 * shape_.num_layers;
  const Hidden hidden = tensors.choices.decode.fused() ? run_fused_blocks(step, blocks, norm, compute, fused)
                                                       : run_blocks(step, blocks, norm, compute);
  return head(weights_.head, hidden, shape_.vocab_size, step);
}

Llama::Weights load_llama_weights(const ModelSource& source, const LlamaConfig& config, const LoadOptions& options) {
  const TensorSplit split = tensor_split({.num_heads = config.num_heads,
                                          .num_kv_heads = config.num_kv_heads,
                                          .intermediate = config.intermediate,
                                          .vocab_size = config.vocab_size},
                                         options.place.rank, options.place.ranks);
  const Slice query_rows = split.heads.times(config.head_dim), kv_rows = split.kv_heads.times(config.head_dim);
  const Extent intermediate = config_extent(config.intermediate, "intermediate_size");
  const Extent vocab = config_extent(config.vocab_size, "vocab_size");
  const Extent heads = heads_extent(config.num_heads, "num_attention_heads", config.head_dim);
  const Extent kv_heads = heads_extent(config.num_kv_heads, "num_key_value_heads", config.head_dim);
  const Extent head_dim{config.head_dim, fmt::format("head_dim is {}", config.head_dim)};
  const HasBias qkv_bias{config.qkv_bias}, output_bias{config.output_bias}, mlp_bias{config.mlp_bias};
  LayerLoader loader(source, {.device = options.device, .dtype = options.dtype, .on_progress = options.on_progress},
                     config_extent(config.hidden, "hidden_size"), static_cast<float>(config.rms_norm_eps), split);

  Llama::Weights weights;
  weights.embedding = loader.vocabulary("model.embed_tokens.weight", vocab);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    Llama::Layer layer;
    layer.attention.norm = loader.norm(prefix + "input_layernorm.weight");
    layer.attention.qkv = loader.projection(
        {rows_of(attention + "q_proj", heads, query_rows), rows_of(attention + "k_proj", kv_heads, kv_rows),
         rows_of(attention + "v_proj", kv_heads, kv_rows)},
        qkv_bias);
    if (config.qk_norm) {
      layer.attention.query_norm = loader.norm(attention + "q_norm.weight", head_dim);
      layer.attention.key_norm = loader.norm(attention + "k_norm.weight", head_dim);
    }
    layer.attention.output = loader.projection_back(attention + "o_proj", heads, query_rows, output_bias);
    layer.feed_forward.norm = loader.norm(prefix + "post_attention_layernorm.weight");
    layer.feed_forward.gated.gate_up = loader.projection({rows_of(mlp + "gate_proj", intermediate, split.intermediate),
                                                          rows_of(mlp + "up_proj", intermediate, split.intermediate)},
                                                         mlp_bias);
    layer.feed_forward.gated.down =
        loader.projection_back(mlp + "down_proj", intermediate, split.intermediate, mlp_bias);
    weights.layers.push_back(layer);
  }
  weights.inv_freq = loader.tensors().constants(rope_frequencies(config.rope, config.head_dim).inv_freq);
  weights.head.norm = loader.norm("model.norm.weight");
  weights.head.logits = config.tie_embeddings ? weights.embedding : loader.vocabulary("lm_head.weight", vocab);

  // Old converters stored the frequencies, and a copy of the tied embedding; neither says anything new.
  constexpr std::string_view kHarmless[] = {"rotary_emb.inv_freq", "lm_head.weight"};
  weights.split = split;
  weights.storage = loader.tensors().finish(std::span(kHarmless).first(config.tie_embeddings ? 2 : 1));
  return weights;
}

std::unique_ptr<Model> load_llama(const ModelSource& source, const LoadOptions& options) {
  const LlamaConfig config = parse_llama_config(source.config());
  Llama::Weights weights = load_llama_weights(source, config, options);
  std::unique_ptr<Strategy> strategy = make_strategy(options.place, weights.split, config.vocab_size);
  return std::make_unique<Llama>(config, std::move(weights), std::move(strategy), options.compute);
}

}  // namespace heddle
