#include "models/deepseek.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "layers/layer_loader.h"
#include "models/expert_weights.h"
#include "parallel/registry.h"

namespace heddle {
namespace {

// Of the norms of latents, whatever rms_norm_eps is.
constexpr float kLatentEps = 1e-6F;

std::vector<Weight> deepseek_matrices(const Deepseek::Weights& weights) {
  std::vector<Weight> all{weights.head.logits};
  for (const Deepseek::Layer& layer : weights.layers) {
    const LatentWeights& attention = layer.attention;
    all.insert(all.end(), {attention.down, attention.to_latents, attention.output});
    if (attention.query_up.out_features > 0) all.push_back(attention.query_up);
    if (layer.experts)
      all.insert(all.end(), {layer.experts->router, layer.experts->gate_up.front(), layer.experts->down.front()});
    else
      all.insert(all.end(), {layer.dense.gated.gate_up, layer.dense.gated.down});
    if (layer.experts && layer.experts->has_shared())
      all.insert(all.end(), {layer.experts->shared.gate_up, layer.experts->shared.down});
  }
  return all;
}

// What one token makes a step read: every token more may choose other experts.
std::size_t deepseek_bytes_per_step(const Deepseek::Weights& weights, int top_k) {
  std::size_t bytes = weights.head.logits.size_bytes();
  for (const Deepseek::Layer& layer : weights.layers) {
    const LatentWeights& attention = layer.attention;
    for (const Weight* weight : {&attention.down, &attention.query_up, &attention.to_latents, &attention.from_latents,
                                 &attention.output, &layer.dense.gated.gate_up, &layer.dense.gated.down})
      bytes += weight->size_bytes();
    if (layer.experts) bytes += bytes_of_token(*layer.experts, top_k);
  }
  return bytes;
}

ExpertReads deepseek_expert_reads(const Deepseek::Weights& weights, const DeepseekConfig& config) {
  if (!config.has_experts()) return {};
  ExpertReads reads{.num_experts = config.num_experts, .top_k = config.rule.top_k};
  for (const Deepseek::Layer& layer : weights.layers)
    if (layer.experts) reads.bytes += bytes_of_expert(*layer.experts);
  return reads;
}

LatentShape latent_shape(const DeepseekConfig& config, const Deepseek::Weights& weights) {
  return {.hidden = config.hidden,
          .num_layers = config.num_layers,
          .num_heads = weights.split.num_heads(),
          .nope_dim = config.nope_dim,
          .rope_dim = config.rope_dim,
          .value_dim = config.value_dim,
          .latent_dim = config.latent_dim,
          .inv_freq = weights.inv_freq,
          .rope_scale = rope_frequencies(config.rope, config.rope_dim).scale,
          .score_scale = config.score_scale};
}

std::optional<int> most_absorbed_of(const LatentAttention& attention, Strategy& strategy, const LayerDTypes& dtypes,
                                    Device device) {
  const int most = attention.most_absorbed(strategy.attention(), dtypes, device);
  return most == std::numeric_limits<int>::max() ? std::nullopt : std::optional(most);
}

// Folders that transformers has saved keep the number of these layers in config.json, and leave out their tensors.
void refuse_mtp_heads(const ModelSource& source, const DeepseekConfig& config) {
  std::vector<std::string_view> found;
  for (int i = config.num_layers; i < config.num_layers + config.num_mtp_layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    std::ranges::copy_if(source.names(), std::back_inserter(found),
                         [&](std::string_view name) { return name.starts_with(prefix); });
  }
  if (found.empty()) return;
  throw_error<InputError>(
      "{}: tensor {}{} belongs to a head that predicts several tokens (MTP), which is not supported yet. The model's "
      "own tokens do not need it: write the folder without it, as from_pretrained and save_pretrained of transformers "
      "do, or without these tensors",
      source.find(found.front())->file, quoted_name(found.front()),
      found.size() == 1 ? "" : fmt::format(" (one of {} such)", found.size()));
}

// A dense layer where config.json has experts, or the other way round; the loader would name a tensor that is missing.
void require_dense_layers(const ModelSource& source, const DeepseekConfig& config) {
  for (int i = 0; i < config.num_layers; ++i) {
    const bool dense = i < config.num_dense_layers;
    const std::string other = fmt::format("model.layers.{}.mlp.{}.weight", i, dense ? "gate" : "gate_proj");
    if (const TensorInfo* found = source.find(other))
      throw_error<InputError>(
          "{}: tensor {} says that layer {} has {}experts, and config.json gives experts to layers from {} on "
          "(first_k_dense_replace; to none if n_routed_experts is null). Is this config.json from another model?",
          found->file, quoted_name(other), i, dense ? "" : "no ", config.num_dense_layers);
  }
}

// Loads a model's layers.
class DeepseekLoader {
 public:
  DeepseekLoader(const ModelSource& source, const DeepseekConfig& config, const LoadOptions& options)
      : config_(config),
        rank_(options.place.rank),
        ranks_(options.place.ranks),
        split_(split_of(config.has_experts() ? config.expert_intermediate : config.intermediate)),
        loader_(source, {.device = options.device, .dtype = options.dtype, .on_progress = options.on_progress},
                config_extent(config.hidden, "hidden_size"), static_cast<float>(config.rms_norm_eps), split_) {}

  Deepseek::Weights load() {
    const Extent vocab = config_extent(config_.vocab_size, "vocab_size");
    Deepseek::Weights weights;
    weights.embedding = loader_.vocabulary("model.embed_tokens.weight", vocab);
    for (int i = 0; i < config_.num_layers; ++i) weights.layers.push_back(layer(i));
    weights.inv_freq = loader_.tensors().constants(rope_frequencies(config_.rope, config_.rope_dim).inv_freq);
    weights.head.norm = loader_.norm("model.norm.weight");
    weights.head.logits = config_.tie_embeddings ? weights.embedding : loader_.vocabulary("lm_head.weight", vocab);
    constexpr std::string_view kHarmless[] = {"rotary_emb.inv_freq", "lm_head.weight"};
    weights.split = split_;
    weights.storage = loader_.tensors().finish(std::span(kHarmless).first(config_.tie_embeddings ? 2 : 1));
    return weights;
  }

 private:
  // All heads have keys of their own.
  TensorSplit split_of(std::int64_t intermediate) const {
    return tensor_split({.num_heads = config_.num_heads,
                         .num_kv_heads = config_.num_heads,
                         .intermediate = intermediate,
                         .vocab_size = config_.vocab_size},
                        rank_, ranks_);
  }

  Deepseek::Layer layer(int index) {
    const std::string prefix = fmt::format("model.layers.{}.", index), mlp = prefix + "mlp.";
    Deepseek::Layer result{.attention = attention(prefix), .dense = {}, .experts = {}};
    const Norm norm = loader_.norm(prefix + "post_attention_layernorm.weight");
    if (index < config_.num_dense_layers)
      result.dense = {.norm = norm, .gated = gated(mlp, config_extent(config_.intermediate, "intermediate_size"))};
    else
      result.experts = experts(mlp, norm);
    return result;
  }

  LatentWeights attention(const std::string& prefix) {
    const std::string of = prefix + "self_attn.";
    const int query = config_.nope_dim + config_.rope_dim;
    const Extent queries = rows_of_heads(query, "qk_nope_head_dim + qk_rope_head_dim");
    const Extent cached{
        config_.latent_dim + config_.rope_dim,
        fmt::format("kv_lora_rank in config.json is {} and qk_rope_head_dim {}", config_.latent_dim, config_.rope_dim)};
    const NamedRows latent = rows_of(of + "kv_a_proj_with_mqa", cached, {0, cached.size});
    const Extent latent_dim = config_extent(config_.latent_dim, "kv_lora_rank");
    const Extent query_rank = config_extent(config_.q_lora_rank, "q_lora_rank");
    const Slice query_rows = split_.heads.times(query);

    LatentWeights weights;
    weights.norm = loader_.norm(prefix + "input_layernorm.weight");
    if (config_.q_lora_rank == 0) {
      weights.down = loader_.projection({rows_of(of + "q_proj", queries, query_rows), latent});
    } else {
      weights.down = loader_.projection({rows_of(of + "q_a_proj", query_rank, {0, query_rank.size}), latent});
      weights.query_norm = {loader_.norm(of + "q_a_layernorm.weight", query_rank).weight, kLatentEps};
      weights.query_up = loader_.projection({rows_of(of + "q_b_proj", queries, query_rows)}, query_rank, HasBias::no);
    }
    weights.latent_norm = {loader_.norm(of + "kv_a_layernorm.weight", latent_dim).weight, kLatentEps};
    const std::vector<Weight> parts = parts_of_up(of + "kv_b_proj.weight", latent_dim);
    weights.to_latents = parts[0];
    weights.from_latents = parts[1];
    weights.expansion = parts[2];
    weights.output = loader_.projection_back(of + "o_proj", rows_of_heads(config_.value_dim, "v_head_dim"),
                                             split_.heads.times(config_.value_dim));
    return weights;
  }

  // kv_b_proj has for each head the rows that make its keys of a latent, then those that make its values. Queries go the
  // way of the keys backwards. The whole expands latents; it is read once for all three.
  std::vector<Weight> parts_of_up(const std::string& name, const Extent& latent_dim) {
    const int nope = config_.nope_dim, value = config_.value_dim, latent = config_.latent_dim, width = nope + value;
    const std::int64_t heads = split_.num_heads();
    const Rearrangement results[] = {
        {.rows = heads * latent,
         .columns = nope,
         .source =
             [=](std::int64_t row, std::int64_t column) {
               return Rearrangement::Place{row / latent * width + column, row % latent};
             }},
        {.rows = heads * value,
         .columns = latent,
         .source =
             [=](std::int64_t row, std::int64_t column) {
               return Rearrangement::Place{row / value * width + nope + row % value, column};
             }},
        {.rows = heads * width, .columns = latent, .source = [](std::int64_t row, std::int64_t column) {
           return Rearrangement::Place{row, column};
         }}};
    return loader_.tensors().rearranged(
        rows_of(name, rows_of_heads(width, "qk_nope_head_dim + v_head_dim"), split_.heads.times(width)), latent_dim,
        results);
  }

  GatedWeights gated(const std::string& of, const Extent& intermediate) {
    return load_expert(loader_, {.gate = of + "gate_proj", .up = of + "up_proj", .down = of + "down_proj"},
                       intermediate, split_of(intermediate.size).intermediate);
  }

  ExpertsWeights experts(const std::string& mlp, const Norm& norm) {
    const Extent num_experts = config_extent(config_.num_experts, "n_routed_experts");
    const Extent intermediate = config_extent(config_.expert_intermediate, "moe_intermediate_size");
    ExpertsWeights weights{.norm = norm};
    weights.router = loader_.projection({rows_of(mlp + "gate", num_experts, {0, num_experts.size})});
    // A NaN here would choose other experts, and reach no logit that tells.
    if (config_.choice_bias)
      weights.bias = loader_.tensors().finite_vector(mlp + "gate.e_score_correction_bias", num_experts);
    for (int e = 0; e < config_.num_experts; ++e) {
      const std::string of = fmt::format("{}experts.{}.", mlp, e);
      add_expert(loader_, {.gate = of + "gate_proj", .up = of + "up_proj", .down = of + "down_proj"}, intermediate,
                 split_.intermediate, weights);
    }
    finish_experts(loader_, weights);
    if (config_.num_shared_experts > 0)
      weights.shared = gated(mlp + "shared_experts.",
                             {std::int64_t{config_.num_shared_experts} * config_.expert_intermediate,
                              fmt::format("n_shared_experts in config.json is {} and moe_intermediate_size {}",
                                          config_.num_shared_experts, config_.expert_intermediate)});
    return weights;
  }

  Extent rows_of_heads(int width, std::string_view fields) const {
    return {std::int64_t{config_.num_heads} * width,
            fmt::format("num_attention_heads in config.json is {} and {} {}", config_.num_heads, fields, width)};
  }

  const DeepseekConfig& config_;
  int rank_, ranks_;
  TensorSplit split_;  // its intermediate is an expert's; without experts a dense layer's
  LayerLoader loader_;
};

}  // namespace

Deepseek::Deepseek(const DeepseekConfig& config, Weights weights, std::unique_ptr<Strategy> strategy, Compute compute)
    : hidden_(config.hidden),
      weights_(std::move(weights)),
      strategy_(std::move(strategy)),
      attention_(latent_shape(config, weights_)),
      rule_(config.rule),
      dtypes_(layer_dtypes(common_dtype(deepseek_matrices(weights_)), weights_.storage.device, compute)),
      shape_({.num_layers = config.num_layers,
              .kv = one_latent(config.latent_dim, config.rope_dim, weights_.layers.front().attention.down.dtype),
              .shard = strategy_->attention().shard(),
              .vocab_size = config.vocab_size,
              .max_context = config.max_position,
              .eos_ids = config.eos_ids,
              .dtype = weights_.layers.front().attention.down.dtype,
              .weight_bytes_per_step = deepseek_bytes_per_step(weights_, config.rule.top_k),
              .experts = deepseek_expert_reads(weights_, config),
              .most_absorbed = most_absorbed_of(attention_, *strategy_, dtypes_, weights_.storage.device),
              .weight_bytes = weights_.storage.size_bytes,
              .delta_bytes_per_token = static_cast<std::size_t>(hidden_) * size_of(dtypes_.deltas)}) {}

std::string Deepseek::why_not_fused(const FusedDecode& decode) const {
  if (!weights_.split.equal_heads) return "ranks have different numbers of heads";
  const auto weights = [this](int layer) -> const LatentWeights& {
    return weights_.layers[static_cast<std::size_t>(layer)].attention;
  };
  return attention_.why_not_fused(decode, weights, dtypes_, *strategy_, device());
}

Tensor Deepseek::run(const StepTensors& tensors, const KvPages& kv, Arena& arena, const Execution& execution) {
  const LatentAttention::Memory memory = attention_.take_memory(tensors.limits, arena, device());
  const LayerStep step = begin_step(*strategy_, tensors, kv, arena, execution, dtypes_, hidden_);
  embed(weights_.embedding, step);
  const auto layer_of = [&](int block) -> const Layer& { return weights_.layers[static_cast<std::size_t>(block / 2)]; };
  const auto is_attention = [](int block) { return block % 2 == 0; };
  const auto norm = [&](int block) {
    const Layer& layer = layer_of(block);
    if (is_attention(block)) return layer.attention.norm;
    return layer.experts ? layer.experts->norm : layer.dense.norm;
  };
  const auto compute = [&](int block, const LayerStep& part) {
    const int layer = block / 2;
    if (is_attention(block)) return attention_.block(layer, layer_of(block).attention, memory, part);
    layer_of(block).experts ? experts(layer, *layer_of(block).experts, rule_, part)
                            : feed_forward(layer, layer_of(block).dense, part);
  };
  const auto fused = [&](int block, const Hidden& before, const Hidden& after) {
    attention_.decode(block / 2, layer_of(block).attention, memory, before, after, step);
  };
  const int blocks = 2 * shape_.num_layers;
  const Hidden hidden = tensors.choices.decode.fused() ? run_fused_blocks(step, blocks, norm, compute, fused)
                                                       : run_blocks(step, blocks, norm, compute);
  return head(weights_.head, hidden, shape_.vocab_size, step);
}

std::unique_ptr<Model> load_deepseek(const ModelSource& source, const LoadOptions& options) {
  const DeepseekConfig config = parse_deepseek_config(source.config());
  refuse_mtp_heads(source, config);
  require_dense_layers(source, config);
  Deepseek::Weights weights = DeepseekLoader(source, config, options).load();
  std::unique_ptr<Strategy> strategy = make_strategy(options.place, weights.split, config.vocab_size);
  return std::make_unique<Deepseek>(config, std::move(weights), std::move(strategy), options.compute);
}

}  // namespace heddle
