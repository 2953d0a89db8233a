#include "models/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "models/deepseek.h"
#include "models/llama.h"
#include "models/llama_config.h"
#include "models/mixtral.h"
#include "models/quantization.h"

namespace heddle {
namespace {

struct Architecture {
  std::string_view name;
  std::vector<std::string> (*unsupported)(const JsonField& config);
  ModelDescription (*describe)(const JsonField& config);  // may throw InputError
  std::unique_ptr<Model> (*load)(const ModelSource&, const LoadOptions&);
};

ModelDescription description_of(const LlamaConfig& llama) {
  return {.context = llama.max_position,
          .layers = llama.num_layers,
          .hidden = llama.hidden,
          .intermediate = llama.intermediate,
          .heads = llama.num_heads,
          .kv_heads = llama.num_kv_heads,
          .head_dim = llama.head_dim,
          .vocab_size = llama.vocab_size,
          .windows = llama.windows,
          .rope = llama.rope,
          .tied_embeddings = llama.tie_embeddings,
          .eos_ids = llama.eos_ids};
}

ModelDescription describe_llama(const JsonField& config) {
  return description_of(parse_llama_config(config));
}

ModelDescription describe_mixtral(const JsonField& config) {
  const MixtralConfig mixtral = parse_mixtral_config(config);
  ModelDescription description = description_of(mixtral.llama);
  description.experts = ExpertsDescription{.count = mixtral.num_experts,
                                           .per_token = mixtral.top_k,
                                           .intermediate = mixtral.llama.intermediate,
                                           .scoring = "softmax",
                                           .method = "greedy",
                                           .normalized = true};
  return description;
}

std::string method_of(const DeepseekConfig& config) {
  if (config.choice_bias) return "noaux_tc";
  return config.rule.num_groups > 1 ? "group_limited_greedy" : "greedy";
}

ModelDescription describe_deepseek(const JsonField& config) {
  const DeepseekConfig deepseek = parse_deepseek_config(config);
  ModelDescription description{.context = deepseek.max_position,
                               .layers = deepseek.num_layers,
                               .hidden = deepseek.hidden,
                               .intermediate = deepseek.intermediate,
                               .heads = deepseek.num_heads,
                               .kv_heads = deepseek.num_heads,
                               .head_dim = deepseek.nope_dim + deepseek.rope_dim,
                               .vocab_size = deepseek.vocab_size,
                               .latent = LatentDescription{.kv_lora_rank = deepseek.latent_dim,
                                                           .q_lora_rank = deepseek.q_lora_rank,
                                                           .qk_nope_head_dim = deepseek.nope_dim,
                                                           .qk_rope_head_dim = deepseek.rope_dim,
                                                           .v_head_dim = deepseek.value_dim},
                               .windows = std::vector<int>(static_cast<std::size_t>(deepseek.num_layers)),
                               .rope = deepseek.rope,
                               .tied_embeddings = deepseek.tie_embeddings,
                               .eos_ids = deepseek.eos_ids};
  if (!deepseek.has_experts()) return description;
  const RouteRule& rule = deepseek.rule;
  const auto scale = config.find("routed_scaling_factor");  // with the digits that rule.scale lacks
  description.experts = ExpertsDescription{.count = deepseek.num_experts,
                                           .per_token = rule.top_k,
                                           .shared = deepseek.num_shared_experts,
                                           .intermediate = deepseek.expert_intermediate,
                                           .dense_layers = deepseek.num_dense_layers,
                                           .scoring = rule.score == RouterScore::sigmoid ? "sigmoid" : "softmax",
                                           .method = method_of(deepseek),
                                           .groups = rule.num_groups,
                                           .groups_per_token = rule.top_groups,
                                           .normalized = rule.normalized,
                                           .scaling = scale ? scale->number(0, 1e6) : rule.scale};
  return description;
}

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", unsupported_llama_features, describe_llama, load_llama},
    {"MistralForCausalLM", unsupported_llama_features, describe_llama, load_llama},
    {"Qwen2ForCausalLM", unsupported_llama_features, describe_llama, load_llama},
    {"Qwen3ForCausalLM", unsupported_llama_features, describe_llama, load_llama},
    {"MixtralForCausalLM", unsupported_mixtral_features, describe_mixtral, load_mixtral},
    {"DeepseekV2ForCausalLM", unsupported_deepseek_features, describe_deepseek, load_deepseek},
    {"DeepseekV3ForCausalLM", unsupported_deepseek_features, describe_deepseek, load_deepseek},
};

// Null if unknown.
const Architecture* find_architecture(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == std::end(kArchitectures) ? nullptr : found;
}

// Throws InputError if unknown.
const Architecture& known_architecture(const JsonField& config) {
  const std::string name = architecture_of(config);
  const Architecture* found = find_architecture(name);
  if (found == nullptr)
    config.at("architectures")
        .fail(fmt::format("\"{}\" is not supported; Heddle knows {}", name, fmt::join(known_architectures(), ", ")));
  return *found;
}

ModelDescription describe_by_common_fields(const JsonField& config) {
  const auto number = [&](std::string_view key) -> std::optional<std::int64_t> {
    const auto field = config.find(key);
    if (!field || !field->value().is_number_integer()) return std::nullopt;
    return field->value().get<std::int64_t>();
  };
  return {.context = number("max_position_embeddings"),
          .layers = number("num_hidden_layers"),
          .hidden = number("hidden_size"),
          .intermediate = number("intermediate_size"),
          .heads = number("num_attention_heads"),
          .kv_heads = number("num_key_value_heads"),
          .head_dim = number("head_dim"),
          .vocab_size = number("vocab_size")};
}

// A view of another source's names, dtypes and shapes. The other source must outlive it.
class WithoutContents : public ModelSource {
 public:
  explicit WithoutContents(const ModelSource& source) : source_(source) {}

  JsonField config() const override { return source_.config(); }
  std::optional<JsonField> generation_config() const override { return source_.generation_config(); }
  std::size_t total_bytes() const override { return source_.total_bytes(); }
  std::vector<std::string_view> names() const override { return source_.names(); }
  const TensorInfo* find(std::string_view name) const override { return source_.find(name); }
  TensorRows rows(std::string_view, std::int64_t, std::int64_t) const override {
    throw InvalidArgument("rows of a model without contents");
  }
  bool has_contents() const override { return false; }
  std::string where() const override { return source_.where(); }

 private:
  const ModelSource& source_;
};

std::unique_ptr<Model> load(const ModelSource& source, const LoadOptions& options) {
  const JsonField config = source.config();
  const Architecture& architecture = known_architecture(config);
  if (!quantization_in(config))  // which the architecture refuses
    if (const auto quantization = quantization_in(source)) throw InputError(*quantization);
  return architecture.load(source, options);
}

}  // namespace

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

std::unique_ptr<Model> load_model(const ModelSource& source, const LoadOptions& options) {
  require(source.has_contents(), "{}: a model of a checkpoint without contents", source.where());
  return load(source, options);
}

std::vector<std::string> unsupported(const JsonField& config) {
  const std::string name = architecture_of(config);
  if (const Architecture* found = find_architecture(name)) return found->unsupported(config);
  std::vector<std::string> sentences = {
      fmt::format("architecture {}; only {} are supported", quoted_name(name), fmt::join(known_architectures(), ", "))};
  if (auto quantization = quantization_in(config)) sentences.push_back(std::move(*quantization));
  return sentences;
}

std::vector<std::string> unsupported_in(const ModelSource& source) {
  std::vector<std::string> sentences = unsupported(source.config());
  if (quantization_in(source.config())) return sentences;
  if (auto quantization = quantization_in(source)) {
    sentences.push_back(std::move(*quantization));
    return sentences;
  }
  std::set<std::string_view> named;
  for (const std::string_view name : source.names()) {
    const StoredDType& dtype = source.find(name)->dtype;
    if (dtype.dtype || !named.insert(dtype.name).second) continue;
    sentences.push_back(
        fmt::format("tensor {} has dtype {}; only F32, F16 and BF16 can be loaded", quoted_name(name), dtype.name));
  }
  return sentences;
}

std::unique_ptr<Model> outline_model(const ModelSource& source, const LoadOptions& options) {
  return load(WithoutContents(source), options);
}

void check_model(const ModelSource& source) {
  outline_model(source, {});
}

ModelDescription describe_model(const JsonField& config) {
  try {
    return known_architecture(config).describe(config);
  } catch (const InputError&) {
    return describe_by_common_fields(config);  // check_model reports the error
  }
}

}  // namespace heddle
