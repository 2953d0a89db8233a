#include "models/llama_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "models/architecture.h"
#include "models/config_fields.h"
#include "models/llama_architecture.h"
#include "models/quantization.h"
#include "models/unsupported_features.h"

namespace heddle {
namespace {

// Defaults of missing fields that all architectures share.
constexpr double kDefaultRmsNormEps = 1e-6;
constexpr int kDefaultWindow = 4096;
constexpr int kDefaultMaxWindowLayers = 28;

constexpr std::string_view kFullAttention = "full_attention";
constexpr std::string_view kSlidingAttention = "sliding_attention";

const LlamaArchitecture& architecture_in(const JsonField& config) {
  const std::string name = architecture_of(config);
  const auto* found = std::ranges::find(kLlamaArchitectures, name, &LlamaArchitecture::name);
  if (found == std::end(kLlamaArchitectures))
    config.at("architectures").fail(fmt::format("\"{}\" is not one of the Llama family", name));
  return *found;
}

int num_kv_heads_of(const JsonField& config, const LlamaArchitecture& architecture, int num_heads) {
  constexpr std::string_view kKey = "num_key_value_heads";
  const auto field = config.find(kKey);
  const int missing = is_missing(config, kKey) ? architecture.num_kv_heads.value_or(num_heads) : num_heads;
  const int num_kv_heads = field ? size_from(*field, kMaxHeads) : missing;
  if (num_heads % num_kv_heads != 0)
    config.at("num_attention_heads")
        .fail(fmt::format("{} is not a multiple of num_key_value_heads {}", num_heads, num_kv_heads));
  return num_kv_heads;
}

int head_dim_of(const JsonField& config, const LlamaArchitecture& architecture, int hidden, int num_heads) {
  const auto field = config.find("head_dim");
  if (!field && architecture.head_dim) return *architecture.head_dim;
  if (!field && hidden % num_heads != 0)
    config.at("hidden_size")
        .fail(
            fmt::format("{} is not a multiple of num_attention_heads {}, and no head_dim is given", hidden, num_heads));
  const int head_dim = field ? size_from(*field, kMaxHeadWidth) : hidden / num_heads;
  if (head_dim > kMaxHeadWidth)
    config.at("hidden_size")
        .fail(fmt::format("{} over num_attention_heads {} makes a head_dim of {}; at most {} is supported", hidden,
                          num_heads, head_dim, kMaxHeadWidth));
  if (head_dim % 2 != 0)
    field.value_or(config.at("hidden_size"))
        .fail(fmt::format("a head_dim of {} is odd; rotary embeddings turn pairs", head_dim));
  return head_dim;
}

// The window of the layers that have one; 0: no layer has.
int window_of(const JsonField& config, const LlamaArchitecture& architecture) {
  constexpr std::string_view kKey = "sliding_window";
  if (architecture.window == LlamaArchitecture::Window::configured && is_missing(config, kKey)) return 0;
  const bool possible =
      architecture.window == LlamaArchitecture::Window::all_layers ||
      architecture.window == LlamaArchitecture::Window::configured ||
      (architecture.window == LlamaArchitecture::Window::some_layers && flag(config, "use_sliding_window"));
  if (!possible) return 0;
  if (is_missing(config, kKey)) return kDefaultWindow;
  const auto field = config.find(kKey);
  return field ? size_from(*field, std::numeric_limits<int>::max()) : 0;
}

std::vector<int> windows_of(const JsonField& config, const LlamaArchitecture& architecture, int num_layers) {
  const int window = window_of(config, architecture);
  const auto layer_types = config.find("layer_types");
  const std::vector<JsonField> types = layer_types ? layer_types->elements() : std::vector<JsonField>();
  if (layer_types && std::ssize(types) != num_layers)
    layer_types->fail(
        fmt::format("has {} elements, expected one for each of num_hidden_layers {}", types.size(), num_layers));

  std::vector<int> windows(static_cast<std::size_t>(num_layers), window);
  if (architecture.window != LlamaArchitecture::Window::some_layers) return windows;
  if (layer_types) {
    for (std::size_t i = 0; i < windows.size(); ++i) {
      if (types[i].text() == kFullAttention)
        windows[i] = 0;
      else if (window == 0)
        types[i].fail("is \"sliding_attention\", but use_sliding_window and sliding_window give no window");
    }
    return windows;
  }
  const auto field = config.find("max_window_layers");
  const std::int64_t num_full = field ? field->integer(0, std::numeric_limits<int>::max()) : kDefaultMaxWindowLayers;
  std::fill_n(windows.begin(), std::min<std::int64_t>(num_full, num_layers), 0);
  return windows;
}

// Finds layer types that contradict the architecture, or that are unknown.
void find_unsupported_layer_types(const JsonField& config, const LlamaArchitecture& architecture,
                                  UnsupportedFeatures& features) {
  const auto layer_types = config.find("layer_types");
  if (!layer_types) return;
  const bool some_layers = architecture.window == LlamaArchitecture::Window::some_layers;
  const bool windows = some_layers || window_of(config, architecture) > 0;
  for (const JsonField& type : layer_types->elements()) {
    if (type.value() == kSlidingAttention && windows) continue;
    if (type.value() == kFullAttention && (some_layers || !windows)) continue;
    features.refuse(type, some_layers ? "\"full_attention\" and \"sliding_attention\""
                          : windows ? "\"sliding_attention\": the sliding_window of this architecture is every layer's"
                                    : "\"full_attention\"");
    break;
  }
}

}  // namespace

std::vector<std::string> unsupported_llama_features(const JsonField& config) {
  return unsupported_llama_features(config, architecture_in(config));
}

std::vector<std::string> unsupported_llama_features(const JsonField& config, const LlamaArchitecture& architecture) {
  UnsupportedFeatures features;
  features.only(config, "hidden_act", {"silu", "swish"});  // two names of the same function
  find_unsupported_rope(config, features);
  const bool window_is_off = config.find("use_sliding_window") && !flag(config, "use_sliding_window");
  if (architecture.window == LlamaArchitecture::Window::none && !window_is_off)
    features.only(config, "sliding_window", {});
  find_unsupported_layer_types(config, architecture, features);
  std::vector<std::string> sentences = std::move(features).sentences();
  if (auto quantization = quantization_in(config)) sentences.insert(sentences.begin(), std::move(*quantization));
  return sentences;
}

LlamaConfig parse_llama_config(const JsonField& config) {
  return parse_llama_config(config, architecture_in(config));
}

LlamaConfig parse_llama_config(const JsonField& config, const LlamaArchitecture& architecture) {
  LlamaConfig llama;
  llama.num_layers = size_from(config.at("num_hidden_layers"), kMaxLayers);
  llama.hidden = size_from(config.at("hidden_size"), kMaxHidden);
  llama.intermediate = size_from(config.at("intermediate_size"), kMaxIntermediate);
  llama.num_heads = size_from(config.at("num_attention_heads"), kMaxHeads);
  llama.num_kv_heads = num_kv_heads_of(config, architecture, llama.num_heads);
  llama.head_dim = head_dim_of(config, architecture, llama.hidden, llama.num_heads);
  llama.vocab_size = config.at("vocab_size").integer(1, kMaxVocab);
  const auto eps = config.find("rms_norm_eps");
  llama.rms_norm_eps = eps ? eps->number(1e-20, 1) : kDefaultRmsNormEps;
  llama.tie_embeddings = flag(config, "tie_word_embeddings");
  llama.eos_ids = token_ids_of(config, "eos_token_id", llama.vocab_size, architecture.eos_id);
  const auto bos_ids = token_ids_of(config, "bos_token_id", llama.vocab_size, architecture.bos_id);
  if (!bos_ids.empty()) llama.bos_id = bos_ids.front();

  if (const auto unsupported = unsupported_llama_features(config, architecture); !unsupported.empty())
    throw_error<InputError>("{}", fmt::join(unsupported, "; "));

  const auto field = config.find("max_position_embeddings");
  const std::int64_t max_position = field ? field->integer(1, kMaxPosition) : architecture.max_position;
  llama.rope = parse_rope_config(config, max_position);
  llama.max_position = stretched_max_position(llama.rope, max_position);
  llama.windows = windows_of(config, architecture, llama.num_layers);

  using AttentionBias = LlamaArchitecture::AttentionBias;
  llama.output_bias = architecture.attention_bias == AttentionBias::configured && flag(config, "attention_bias");
  llama.qkv_bias = architecture.attention_bias == AttentionBias::qkv || llama.output_bias;
  llama.mlp_bias = architecture.mlp_bias == LlamaArchitecture::MlpBias::configured && flag(config, "mlp_bias");
  llama.qk_norm = architecture.qk_norm == LlamaArchitecture::QkNorm::per_head;
  return llama;
}

}  // namespace heddle
