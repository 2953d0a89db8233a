#include "models/mixtral.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "layers/layer_loader.h"
#include "models/expert_weights.h"
#include "parallel/registry.h"

namespace heddle {
namespace {

std::vector<Weight> mixtral_matrices(const Mixtral::Weights& weights) {
  std::vector<Weight> all{weights.head.logits};
  for (const Mixtral::Layer& layer : weights.layers)
    all.insert(all.end(), {layer.attention.qkv, layer.attention.output, layer.experts.router,
                           layer.experts.gate_up.front(), layer.experts.down.front()});
  return all;
}

// What one token makes a step read: every token more may choose other experts.
std::size_t mixtral_bytes_per_step(const Mixtral::Weights& weights, int top_k) {
  std::size_t bytes = weights.head.logits.size_bytes();
  for (const Mixtral::Layer& layer : weights.layers)
    bytes +=
        layer.attention.qkv.size_bytes() + layer.attention.output.size_bytes() + bytes_of_token(layer.experts, top_k);
  return bytes;
}

ExpertReads mixtral_expert_reads(const Mixtral::Weights& weights, const MixtralConfig& config) {
  ExpertReads reads{.num_experts = config.num_experts, .top_k = config.top_k};
  for (const Mixtral::Layer& layer : weights.layers) reads.bytes += bytes_of_expert(layer.experts);
  return reads;
}

AttentionShape mixtral_attention(const LlamaConfig& config, const Mixtral::Weights& weights) {
  return {.hidden = static_cast<int>(config.hidden),
          .num_heads = weights.split.num_heads(),
          .num_kv_heads = weights.split.num_kv_heads(),
          .head_dim = config.head_dim,
          .windows = config.windows,
          .inv_freq = weights.inv_freq,
          .rope_scale = rope_frequencies(config.rope, config.head_dim).scale};
}

Mixtral::Weights load_mixtral_weights(const ModelSource& source, const MixtralConfig& mixtral,
                                      const LoadOptions& options) {
  const LlamaConfig& config = mixtral.llama;
  const TensorSplit split = tensor_split({.num_heads = config.num_heads,
                                          .num_kv_heads = config.num_kv_heads,
                                          .intermediate = config.intermediate,
                                          .vocab_size = config.vocab_size},
                                         options.place.rank, options.place.ranks);
  const Slice query_rows = split.heads.times(config.head_dim), kv_rows = split.kv_heads.times(config.head_dim);
  const Extent intermediate = config_extent(config.intermediate, "intermediate_size");
  const Extent vocab = config_extent(config.vocab_size, "vocab_size");
  const Extent num_experts = config_extent(mixtral.num_experts, "num_local_experts");
  const Extent heads = heads_extent(config.num_heads, "num_attention_heads", config.head_dim);
  const Extent kv_heads = heads_extent(config.num_kv_heads, "num_key_value_heads", config.head_dim);
  LayerLoader loader(source, {.device = options.device, .dtype = options.dtype, .on_progress = options.on_progress},
                     config_extent(config.hidden, "hidden_size"), static_cast<float>(config.rms_norm_eps), split);

  Mixtral::Weights weights;
  weights.embedding = loader.vocabulary("model.embed_tokens.weight", vocab);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    const std::string attention = prefix + "self_attn.", moe = prefix + "block_sparse_moe.";
    Mixtral::Layer layer;
    layer.attention.norm = loader.norm(prefix + "input_layernorm.weight");
    layer.attention.qkv = loader.projection({rows_of(attention + "q_proj", heads, query_rows),
                                             rows_of(attention + "k_proj", kv_heads, kv_rows),
                                             rows_of(attention + "v_proj", kv_heads, kv_rows)});
    layer.attention.output = loader.projection_back(attention + "o_proj", heads, query_rows);
    layer.experts.norm = loader.norm(prefix + "post_attention_layernorm.weight");
    layer.experts.router = loader.projection({rows_of(moe + "gate", num_experts, {0, mixtral.num_experts})});
    for (int e = 0; e < mixtral.num_experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", moe, e);
      add_expert(loader, {.gate = expert + "w1", .up = expert + "w3", .down = expert + "w2"}, intermediate,
                 split.intermediate, layer.experts);
    }
    finish_experts(loader, layer.experts);
    weights.layers.push_back(std::move(layer));
  }
  weights.inv_freq = loader.tensors().constants(rope_frequencies(config.rope, config.head_dim).inv_freq);
  weights.head.norm = loader.norm("model.norm.weight");
  weights.head.logits = config.tie_embeddings ? weights.embedding : loader.vocabulary("lm_head.weight", vocab);

  // As in Llama's folders.
  constexpr std::string_view kHarmless[] = {"rotary_emb.inv_freq", "lm_head.weight"};
  weights.split = split;
  weights.storage = loader.tensors().finish(std::span(kHarmless).first(config.tie_embeddings ? 2 : 1));
  return weights;
}

}  // namespace

Mixtral::Mixtral(const MixtralConfig& config, Weights weights, std::unique_ptr<Strategy> strategy, Compute compute)
    : hidden_(config.llama.hidden),
      weights_(std::move(weights)),
      strategy_(std::move(strategy)),
      attention_(mixtral_attention(config.llama, weights_)),
      rule_({.top_k = config.top_k, .normalized = true}),
      dtypes_(layer_dtypes(common_dtype(mixtral_matrices(weights_)), weights_.storage.device, compute)),
      shape_({.num_layers = config.llama.num_layers,
              .kv = keys_and_values(weights_.split.num_kv_heads(), config.llama.head_dim,
                                    weights_.layers.front().attention.qkv.dtype),
              .shard = strategy_->attention().shard(),
              .vocab_size = config.llama.vocab_size,
              .max_context = config.llama.max_position,
              .eos_ids = config.llama.eos_ids,
              .dtype = weights_.layers.front().attention.qkv.dtype,
              .weight_bytes_per_step = mixtral_bytes_per_step(weights_, config.top_k),
              .experts = mixtral_expert_reads(weights_, config),
              .weight_bytes = weights_.storage.size_bytes,
              .delta_bytes_per_token = static_cast<std::size_t>(hidden_) * size_of(dtypes_.deltas)}) {}

std::string Mixtral::why_not_fused(const FusedDecode& decode) const {
  if (!weights_.split.equal_heads) return "ranks have different numbers of heads";
  const auto weights = [this](int layer) -> const AttentionWeights& {
    return weights_.layers[static_cast<std::size_t>(layer)].attention;
  };
  return attention_.why_not_fused(decode, weights, dtypes_, *strategy_, device());
}

Tensor Mixtral::run(const StepTensors& tensors, const KvPages& kv, Arena& arena, const Execution& execution) {
  const Attention::Memory memory = attention_.take_memory(tensors.limits, arena, device());
  const LayerStep step = begin_step(*strategy_, tensors, kv, arena, execution, dtypes_, hidden_);
  embed(weights_.embedding, step);
  const auto layer_of = [&](int block) -> const Layer& { return weights_.layers[static_cast<std::size_t>(block / 2)]; };
  const auto is_attention = [](int block) { return block % 2 == 0; };
  const auto norm = [&](int block) {
    return is_attention(block) ? layer_of(block).attention.norm : layer_of(block).experts.norm;
  };
  const auto compute = [&](int block, const LayerStep& part) {
    const int layer = block / 2;
    if (is_attention(block)) return attention_.block(layer, layer_of(block).attention, memory, part);
    experts(layer, layer_of(block).experts, rule_, part);
  };
  const auto fused = [&](int block, const Hidden& before, const Hidden& after) {
    attention_.decode(block / 2, layer_of(block).attention, memory, before, after, step);
  };
  const int blocks = 2 * shape_.num_layers;
  const Hidden hidden = tensors.choices.decode.fused() ? run_fused_blocks(step, blocks, norm, compute, fused)
                                                       : run_blocks(step, blocks, norm, compute);
  return head(weights_.head, hidden, shape_.vocab_size, step);
}

std::unique_ptr<Model> load_mixtral(const ModelSource& source, const LoadOptions& options) {
  const MixtralConfig config = parse_mixtral_config(source.config());
  Mixtral::Weights weights = load_mixtral_weights(source, config, options);
  std::unique_ptr<Strategy> strategy = make_strategy(options.place, weights.split, config.llama.vocab_size);
  return std::make_unique<Mixtral>(config, std::move(weights), std::move(strategy), options.compute);
}

}  // namespace heddle
