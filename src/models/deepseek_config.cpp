#include "models/deepseek_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "kernels/attention/attention.h"
#include "models/architecture.h"
#include "models/config_fields.h"
#include "models/quantization.h"
#include "models/unsupported_features.h"

namespace heddle {
namespace {

// Defaults of missing fields in transformers.
struct DeepseekDefaults {
  int q_lora_rank = 1536, kv_lora_rank = 512, nope_dim = 128, rope_dim = 64, value_dim = 128;
  int num_experts, num_shared_experts, expert_intermediate, num_dense_layers, num_groups, top_groups;
  std::optional<int> top_k;
  double routed_scale;
  bool normalized;
  std::int64_t max_position;
  std::int32_t bos_id, eos_id;
};

constexpr DeepseekDefaults kV2{.num_experts = 64,
                               .num_shared_experts = 2,
                               .expert_intermediate = 1407,
                               .num_dense_layers = 0,
                               .num_groups = 1,
                               .top_groups = 1,
                               .top_k = std::nullopt,
                               .routed_scale = 1,
                               .normalized = false,
                               .max_position = 2048,
                               .bos_id = 1,
                               .eos_id = 2};
constexpr DeepseekDefaults kV3{.num_experts = 256,
                               .num_shared_experts = 1,
                               .expert_intermediate = 2048,
                               .num_dense_layers = 3,
                               .num_groups = 8,
                               .top_groups = 4,
                               .top_k = 8,
                               .routed_scale = 2.5,
                               .normalized = true,
                               .max_position = 4096,
                               .bos_id = 0,
                               .eos_id = 1};
constexpr double kDeepseekRmsNormEps = 1e-6;

bool is_v3(const JsonField& config) {
  return architecture_of(config) == "DeepseekV3ForCausalLM";
}

// A number from 0 on; null means 0.
int count_or(const JsonField& config, std::string_view key, std::int64_t max, int missing) {
  if (is_missing(config, key)) return missing;
  const auto field = config.find(key);
  return field ? static_cast<int>(field->integer(0, max)) : 0;
}

JsonField field_or_config(const JsonField& config, std::string_view key) {
  return config.find(key).value_or(config);
}

RouteRule rule_of(const JsonField& config, const DeepseekDefaults& defaults, int num_experts) {
  const bool v3 = &defaults == &kV3;
  const auto method = config.find("topk_method");
  const bool in_groups = v3 || (method && method->text() == "group_limited_greedy");
  RouteRule rule{.score = v3 ? RouterScore::sigmoid : RouterScore::softmax,
                 .group_score = v3 ? GroupScore::two_largest : GroupScore::largest};
  rule.top_k = defaults.top_k ? size_or(config, "num_experts_per_tok", kMaxTopExperts, *defaults.top_k)
                              : size_from(config.at("num_experts_per_tok"), kMaxTopExperts);
  if (in_groups && !v3)
    for (const std::string_view key : {"n_group", "topk_group"})
      if (!is_missing(config, key) && !config.find(key))
        config.fail(fmt::format("{} is null, and topk_method chooses among groups", key));
  if (in_groups) {
    rule.num_groups = size_or(config, "n_group", kMaxExperts, defaults.num_groups);
    rule.top_groups = size_or(config, "topk_group", kMaxExperts, defaults.top_groups);
  }
  if (num_experts % rule.num_groups != 0)
    field_or_config(config, "n_group")
        .fail(fmt::format("{} groups do not divide n_routed_experts {}", rule.num_groups, num_experts));
  if (rule.top_groups > rule.num_groups)
    field_or_config(config, "topk_group").fail(fmt::format("{} is above n_group {}", rule.top_groups, rule.num_groups));
  const int candidates = num_experts / rule.num_groups * rule.top_groups;
  if (rule.top_k > candidates)
    field_or_config(config, "num_experts_per_tok")
        .fail(fmt::format("{} is above the {} experts to choose from, of n_routed_experts {} in {} of {} groups",
                          rule.top_k, candidates, num_experts, rule.top_groups, rule.num_groups));
  if (v3 && rule.num_groups > 1 && num_experts / rule.num_groups < 2)
    field_or_config(config, "n_group").fail("leaves groups of one expert; a group counts by its two best");
  rule.normalized = is_missing(config, "norm_topk_prob") ? defaults.normalized : flag(config, "norm_topk_prob");
  const auto scale = config.find("routed_scaling_factor");
  rule.scale = static_cast<float>(scale ? scale->number(1e-6, 1e6) : defaults.routed_scale);
  return rule;
}

// What YaRN multiplies scores by (DeepSeek's "mscale_all_dim"): in transformers for every kind of scaling.
double score_mscale(const JsonField& config, const RopeConfig& rope) {
  if (std::holds_alternative<std::monostate>(rope.scaling)) return 1;
  double mscale_all_dim = 0;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (const auto parameters = config.find(key); parameters && parameters->is_object())
      if (const auto field = parameters->find("mscale_all_dim")) mscale_all_dim = field->number(0, 1000);
  struct Factor {
    double operator()(std::monostate) const { return 1; }
    double operator()(const LinearRope& linear) const { return linear.factor; }
    double operator()(const Llama3Rope& llama3) const { return llama3.factor; }
    double operator()(const YarnRope& yarn) const { return yarn.factor; }
  };
  const double factor = std::visit(Factor{}, rope.scaling);
  if (mscale_all_dim == 0 || factor <= 1) return 1;
  const double mscale = 0.1 * mscale_all_dim * std::log(factor) + 1;
  return mscale * mscale;
}

}  // namespace

std::vector<std::string> unsupported_deepseek_features(const JsonField& config) {
  const bool v3 = is_v3(config);
  UnsupportedFeatures features;
  features.only(config, "hidden_act", {"silu", "swish"});
  features.only(config, "attention_bias", {false});
  features.only(config, "mlp_bias", {false});
  features.only(config, "moe_layer_freq", {1});
  if (v3) {
    features.only(config, "scoring_func", {"sigmoid"});
    features.only(config, "topk_method", {"noaux_tc"});
    features.only(config, "rope_interleave", {true});
  } else {
    features.only(config, "scoring_func", {"softmax"});
    features.only(config, "topk_method", {"greedy", "group_limited_greedy"});
    features.only(config, "norm_topk_prob", {false});
  }
  find_unsupported_rope(config, features);
  std::vector<std::string> sentences = std::move(features).sentences();
  if (auto quantization = quantization_in(config)) sentences.insert(sentences.begin(), std::move(*quantization));
  return sentences;
}

DeepseekConfig parse_deepseek_config(const JsonField& config) {
  const DeepseekDefaults& defaults = is_v3(config) ? kV3 : kV2;
  DeepseekConfig model;
  model.num_layers = size_from(config.at("num_hidden_layers"), kMaxLayers);
  model.num_dense_layers =
      std::min(model.num_layers, count_or(config, "first_k_dense_replace", kMaxLayers, defaults.num_dense_layers));
  model.hidden = size_from(config.at("hidden_size"), kMaxHidden);
  model.num_heads = size_from(config.at("num_attention_heads"), kMaxHeads);
  if (const auto kv_heads = config.find("num_key_value_heads");
      kv_heads && size_from(*kv_heads, kMaxHeads) != model.num_heads)
    kv_heads->fail(fmt::format("{} is not num_attention_heads {}: latents make keys for every head",
                               size_from(*kv_heads, kMaxHeads), model.num_heads));
  model.q_lora_rank = count_or(config, "q_lora_rank", kMaxHidden, defaults.q_lora_rank);
  model.latent_dim = size_or(config, "kv_lora_rank", kMaxHeadDim, defaults.kv_lora_rank);
  model.nope_dim = size_or(config, "qk_nope_head_dim", kMaxHeadWidth, defaults.nope_dim);
  model.rope_dim = size_or(config, "qk_rope_head_dim", 256, defaults.rope_dim);
  model.value_dim = size_or(config, "v_head_dim", kMaxHeadWidth, defaults.value_dim);
  if (model.rope_dim % 2 != 0)
    field_or_config(config, "qk_rope_head_dim")
        .fail(fmt::format("{} is odd; rotary embeddings turn pairs", model.rope_dim));
  if (model.latent_dim + model.rope_dim > kMaxHeadDim)
    field_or_config(config, "kv_lora_rank")
        .fail(fmt::format("{} and qk_rope_head_dim {} make rows of {} in the cache; at most {} are supported",
                          model.latent_dim, model.rope_dim, model.latent_dim + model.rope_dim, kMaxHeadDim));
  model.intermediate = size_from(config.at("intermediate_size"), kMaxIntermediate);
  model.vocab_size = config.at("vocab_size").integer(1, kMaxVocab);
  const auto eps = config.find("rms_norm_eps");
  model.rms_norm_eps = eps ? eps->number(1e-20, 1) : kDeepseekRmsNormEps;
  model.num_mtp_layers = std::max(count_or(config, "num_nextn_predict_layers", kMaxLayers, 0),
                                  count_or(config, "num_mtp_layers", kMaxLayers, 0));
  model.tie_embeddings = flag(config, "tie_word_embeddings");
  model.eos_ids = token_ids_of(config, "eos_token_id", model.vocab_size, defaults.eos_id);

  if (const auto unsupported = unsupported_deepseek_features(config); !unsupported.empty())
    throw_error<InputError>("{}", fmt::join(unsupported, "; "));

  if (config.find("n_routed_experts") || is_missing(config, "n_routed_experts")) {
    model.num_experts = size_or(config, "n_routed_experts", kMaxExperts, defaults.num_experts);
  } else {
    model.num_dense_layers = model.num_layers;  // null: no layer has experts
  }
  if (model.has_experts()) {
    model.expert_intermediate =
        size_or(config, "moe_intermediate_size", kMaxIntermediate, defaults.expert_intermediate);
    model.num_shared_experts = count_or(config, "n_shared_experts", kMaxExperts, defaults.num_shared_experts);
    if (std::int64_t{model.num_shared_experts} * model.expert_intermediate > kMaxIntermediate)
      config.at("n_shared_experts")
          .fail(fmt::format("{} experts of {} features are too wide", model.num_shared_experts,
                            model.expert_intermediate));
    model.rule = rule_of(config, defaults, model.num_experts);
    model.choice_bias = is_v3(config);
  }
  const auto field = config.find("max_position_embeddings");
  const std::int64_t max_position = field ? field->integer(1, kMaxPosition) : defaults.max_position;
  model.rope = parse_rope_config(config, max_position);
  model.max_position = stretched_max_position(model.rope, max_position);
  model.score_scale = static_cast<float>(score_mscale(config, model.rope) /
                                         std::sqrt(static_cast<double>(model.nope_dim + model.rope_dim)));
  return model;
}

}  // namespace heddle
