// Models for the wafer's analytical model: by name, or from a config.json.
#include <fmt/ranges.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/wafer/wafer.h"
#include "models/registry.h"
#include "weights/shapes.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{4} << 20;
constexpr std::string_view kSynthetic = "synth:";

WaferModel sizes_of(const KnownShape& shape) {
  return {.num_layers = shape.num_layers,
          .hidden = shape.hidden,
          .intermediate = shape.intermediate,
          .num_heads = shape.num_heads,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .vocab = static_cast<int>(shape.vocab_size),
          .experts = shape.experts.count,
          .experts_per_token = shape.experts.per_token};
}

std::string names_of_shapes() {
  std::vector<std::string_view> names;
  names.reserve(kKnownShapes.size());
  for (const KnownShape& shape : kKnownShapes)
    if (shape.latent.latent_dim == 0) names.push_back(shape.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

int size_from(const std::optional<std::int64_t>& value, std::string_view field, const std::string& where) {
  constexpr std::int64_t kMost = 1 << 28;
  if (!value) throw_error<InputError>("{}: {} is missing or no whole number", where, field);
  if (*value < 1 || *value > kMost)
    throw_error<InputError>("{}: {} is {}, expected 1 to {}", where, field, *value, kMost);
  return static_cast<int>(*value);
}

// Other models that share only names with Mixtral may have its keys.
void check_is_mixtral(const JsonField& root) {
  if (const auto type = root.find("model_type"); type && type->text() != "mixtral")
    type->fail(fmt::format(
        "is \"{}\" beside num_local_experts; of mixtures of experts the wafer's costs know \"mixtral\"", type->text()));
  if (const auto names = root.find("architectures"); names && !root.find("model_type")) {
    for (const JsonField& name : names->elements())
      if (name.text() != "MixtralForCausalLM")
        name.fail("beside num_local_experts; of mixtures of experts the wafer's costs know MixtralForCausalLM");
  }
}

// Rejects attention without KV heads, which no other field reveals.
void check_has_heads(const JsonField& root) {
  for (const char* latent : {"kv_lora_rank", "q_lora_rank", "qk_rope_head_dim"})
    if (const auto field = root.find(latent))
      field->fail("is of latent attention, which the wafer's costs do not know");
}

WaferModel parse_config(const std::string& text, const std::string& where) {
  const nlohmann::json config = parse_json(text, where);
  JsonField root(config, where);
  if (!root.is_object()) root.fail_expected("an object, as a config.json of Hugging Face is");
  if (const auto language_part = root.find("text_config"); language_part && language_part->is_object())
    root = *language_part;  // multimodal models
  for (const char* other : {"num_experts", "n_routed_experts", "moe_intermediate_size", "n_shared_experts"})
    if (root.find(other))
      root.at(other).fail(
          "belongs to a mixture of experts of another kind than Mixtral's, the only one that the wafer's costs "
          "support");
  if (root.find("num_local_experts")) check_is_mixtral(root);
  check_has_heads(root);
  const ModelDescription found = describe_model(root);
  WaferModel model;
  model.num_layers = size_from(found.layers, "num_hidden_layers", where);
  model.hidden = size_from(found.hidden, "hidden_size", where);
  model.intermediate = size_from(found.intermediate, "intermediate_size", where);
  model.num_heads = size_from(found.heads, "num_attention_heads", where);
  model.num_kv_heads = found.kv_heads ? size_from(found.kv_heads, "num_key_value_heads", where) : model.num_heads;
  if (!found.head_dim && model.hidden % model.num_heads != 0)
    throw_error<InputError>("{}: hidden_size is {}, no multiple of num_attention_heads, {}; give head_dim", where,
                            model.hidden, model.num_heads);
  const std::int64_t head_dim = model.hidden / model.num_heads;
  model.head_dim = size_from(found.head_dim ? found.head_dim : head_dim, "head_dim", where);
  model.vocab = size_from(found.vocab_size, "vocab_size", where);
  if (const auto experts = root.find("num_local_experts")) {
    model.experts = static_cast<int>(experts->integer(1, 4096));
    model.experts_per_token = static_cast<int>(root.at("num_experts_per_tok").integer(1, model.experts));
  }
  if (model.num_kv_heads > model.num_heads)
    throw_error<InputError>("{}: num_key_value_heads is {}, more than num_attention_heads, {}", where,
                            model.num_kv_heads, model.num_heads);
  if (model.num_heads % model.num_kv_heads != 0)
    throw_error<InputError>("{}: num_key_value_heads is {}, which does not divide num_attention_heads, {}", where,
                            model.num_kv_heads, model.num_heads);
  if (std::int64_t{model.num_heads} * model.head_dim > std::numeric_limits<int>::max())
    throw_error<InputError>("{}: {} heads of {} are too wide", where, model.num_heads, model.head_dim);
  return model;
}

}  // namespace

NamedWaferModel open_wafer_model(const std::string& name_or_config) {
  std::string_view name = name_or_config;
  if (name.starts_with(kSynthetic)) name.remove_prefix(kSynthetic.size());
  if (const KnownShape* shape = find_known_shape(name)) {
    if (shape->latent.latent_dim > 0)
      throw_error<InputError>("--model {}: has latent attention, which the wafer's costs do not know", name_or_config);
    return {std::string(name), sizes_of(*shape)};
  }
  std::filesystem::path path = name_or_config;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path /= "config.json";
  if (!std::filesystem::exists(path, error))
    throw_error<InputError>("--model {}: no such model or file; models are {}, or a config.json", name_or_config,
                            names_of_shapes());
  return {name_or_config, parse_config(read_file(path, kMaxConfigBytes), path.string())};
}

WaferModelMeshes default_meshes(const std::string& model_name) {
  if (model_name == "llama-2-13b") return {{750, 750}, {375, 375}};
  return {{660, 660}, {360, 360}};
}

}  // namespace heddle
