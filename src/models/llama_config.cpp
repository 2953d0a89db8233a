#include "models/llama_config.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace heddle {
namespace {

using nlohmann::json;

// An order of magnitude above the largest models. What lies beyond is a mistake or an attack.
constexpr std::int64_t kMaxLayers = 1 << 10;
constexpr std::int64_t kMaxHidden = 1 << 17;
constexpr std::int64_t kMaxIntermediate = 1 << 20;
constexpr std::int64_t kMaxHeads = 1 << 12;
constexpr std::int64_t kMaxHeadDim = 1 << 10;
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxPosition = 1 << 24;

// transformers' own values for fields that may be missing.
constexpr std::int64_t kDefaultMaxPosition = 2048;
constexpr double kDefaultRmsNormEps = 1e-6;
constexpr double kDefaultRopeTheta = 10000;

int size_from(const JsonField& field, std::int64_t max) {
  return static_cast<int>(field.integer(1, max));
}

int head_dim_of(const JsonField& config, int hidden, int num_heads) {
  const auto field = config.find("head_dim");
  if (!field && hidden % num_heads != 0)
    config.at("hidden_size")
        .fail(
            fmt::format("{} is not a multiple of num_attention_heads {}, and no head_dim is given", hidden, num_heads));
  const int head_dim = field ? size_from(*field, kMaxHeadDim) : hidden / num_heads;
  if (head_dim > kMaxHeadDim)
    config.at("hidden_size")
        .fail(fmt::format("{} over num_attention_heads {} makes a head_dim of {}; at most {} is supported", hidden,
                          num_heads, head_dim, kMaxHeadDim));
  if (head_dim % 2 != 0)
    field.value_or(config.at("hidden_size"))
        .fail(fmt::format("a head_dim of {} is odd; rotary embeddings turn pairs", head_dim));
  return head_dim;
}

// rope_theta lies at the top level (transformers 4), or in rope_parameters (5), which counts if both are there.
double rope_theta_of(const JsonField& config) {
  double theta = kDefaultRopeTheta;
  const auto read = [&](const JsonField& parent) {
    if (const auto field = parent.find("rope_theta")) theta = field->number(1, 1e12);
  };
  read(config);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    if (const auto rope = config.find(key)) read(*rope);
  return theta;
}

std::vector<std::int32_t> token_ids_of(const JsonField& config, std::string_view key, std::int64_t vocab_size) {
  const auto field = config.find(key);
  if (!field) return {};
  std::vector<std::int32_t> ids;
  for (const JsonField& id : field->is_array() ? field->elements() : std::vector{*field})
    ids.push_back(static_cast<std::int32_t>(id.integer(0, vocab_size - 1)));
  return ids;
}

// Collects what is not supported.
class Features {
 public:
  explicit Features(const JsonField& config) : config_(config) {}

  // A field that is missing or null is as good as supported.
  void only(std::string_view key, std::initializer_list<json> supported) {
    const auto field = config_.find(key);
    if (!field || std::ranges::find(supported, field->value()) != supported.end()) return;
    std::vector<std::string> names;
    for (const json& value : supported) names.push_back(value.dump());
    refuse(*field, names.empty() ? "none" : fmt::format("{}", fmt::join(names, " and ")));
  }

  void refuse(const JsonField& field, std::string_view supported) {
    sentences_.push_back(
        fmt::format("{}: {} is not supported yet, only {}", field.path(), shorten(field.value()), supported));
  }

  std::vector<std::string> sentences() && { return std::move(sentences_); }

 private:
  const JsonField& config_;
  std::vector<std::string> sentences_;
};

void check_rope(const JsonField& rope, Features& features) {
  if (!rope.is_object()) rope.fail_expected("an object");
  const auto type = rope.find("rope_type");
  const auto old_type = rope.find("type");  // its name before transformers 4.43
  if (const auto& given = type ? type : old_type) {
    if (given->value() != "default") features.refuse(*given, "\"default\"");
  } else if (rope.find("factor")) {
    rope.fail("has a factor but no rope_type");
  }
  for (const auto& [key, member] : rope.members()) {
    // A model with several kinds of layers has an object for each.
    if (member.is_object()) features.refuse(member, "one set of parameters for all layers");
    if (key == "partial_rotary_factor" && member.value() != 1) features.refuse(member, "1");
  }
}

}  // namespace

std::vector<std::string> unsupported_llama_features(const JsonField& config) {
  Features features(config);
  features.only("hidden_act", {"silu", "swish"});  // two names of one function
  features.only("attention_bias", {false});
  features.only("mlp_bias", {false});
  features.only("partial_rotary_factor", {1});
  features.only("sliding_window", {});
  features.only("quantization_config", {});
  features.only("compression_config", {});
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    if (const auto rope = config.find(key)) check_rope(*rope, features);
  if (const auto layer_types = config.find("layer_types"))
    for (const JsonField& type : layer_types->elements())
      if (type.value() != "full_attention") {
        features.refuse(type, "\"full_attention\"");
        break;
      }
  return std::move(features).sentences();
}

LlamaConfig parse_llama_config(const JsonField& config) {
  LlamaConfig llama;
  llama.num_layers = size_from(config.at("num_hidden_layers"), kMaxLayers);
  llama.hidden = size_from(config.at("hidden_size"), kMaxHidden);
  llama.intermediate = size_from(config.at("intermediate_size"), kMaxIntermediate);
  llama.num_heads = size_from(config.at("num_attention_heads"), kMaxHeads);
  const auto num_kv_heads = config.find("num_key_value_heads");
  llama.num_kv_heads = num_kv_heads ? size_from(*num_kv_heads, kMaxHeads) : llama.num_heads;
  if (llama.num_heads % llama.num_kv_heads != 0)
    config.at("num_attention_heads")
        .fail(fmt::format("{} is not a multiple of num_key_value_heads {}", llama.num_heads, llama.num_kv_heads));
  llama.head_dim = head_dim_of(config, llama.hidden, llama.num_heads);
  llama.vocab_size = config.at("vocab_size").integer(1, kMaxVocab);

  const auto max_position = config.find("max_position_embeddings");
  llama.max_position = max_position ? max_position->integer(1, kMaxPosition) : kDefaultMaxPosition;
  llama.rope_theta = rope_theta_of(config);
  const auto eps = config.find("rms_norm_eps");
  llama.rms_norm_eps = eps ? eps->number(1e-20, 1) : kDefaultRmsNormEps;
  const auto tie = config.find("tie_word_embeddings");
  llama.tie_embeddings = tie && tie->boolean();

  llama.eos_ids = token_ids_of(config, "eos_token_id", llama.vocab_size);
  if (const auto bos = config.find("bos_token_id"))
    llama.bos_id = static_cast<std::int32_t>(bos->integer(0, llama.vocab_size - 1));

  if (const auto unsupported = unsupported_llama_features(config); !unsupported.empty())
    throw_error<InputError>("{}", fmt::join(unsupported, "; "));
  return llama;
}

}  // namespace heddle
