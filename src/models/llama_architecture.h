// The architectures of the Llama family: their differences, and the defaults that their config classes in transformers
// use for missing fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle {

struct LlamaArchitecture {
  enum class AttentionBias {
    none,
    qkv,         // on q, k and v, always
    configured,  // on q, k, v and o if attention_bias is true
  };
  enum class MlpBias {
    none,
    configured,  // on gate, up and down if mlp_bias is true
  };
  enum class QkNorm {
    none,
    per_head,  // RMSNorm of each head of q and k, before the rotation
  };
  enum class Window {
    none,
    all_layers,   // sliding_window, unless it is null
    configured,   // the same, and none where the field is missing
    some_layers,  // if use_sliding_window is true: those in layer_types, or from max_window_layers on
  };

  std::string_view name;
  AttentionBias attention_bias;
  MlpBias mlp_bias;
  QkNorm qk_norm;
  Window window;

  // Defaults of missing fields.
  std::int64_t max_position;           // max_position_embeddings
  std::optional<int> num_kv_heads;     // nothing: equal to the number of heads
  std::optional<int> head_dim;         // nothing: hidden / num_heads
  std::optional<std::int32_t> bos_id;  // nothing: no bos token
  std::optional<std::int32_t> eos_id;
};

inline constexpr LlamaArchitecture kLlamaArchitectures[] = {
    {.name = "LlamaForCausalLM",
     .attention_bias = LlamaArchitecture::AttentionBias::configured,
     .mlp_bias = LlamaArchitecture::MlpBias::configured,
     .qk_norm = LlamaArchitecture::QkNorm::none,
     .window = LlamaArchitecture::Window::none,
     .max_position = 2048,
     .num_kv_heads = std::nullopt,
     .head_dim = std::nullopt,
     .bos_id = 1,
     .eos_id = 2},
    {.name = "MistralForCausalLM",
     .attention_bias = LlamaArchitecture::AttentionBias::none,
     .mlp_bias = LlamaArchitecture::MlpBias::none,
     .qk_norm = LlamaArchitecture::QkNorm::none,
     .window = LlamaArchitecture::Window::all_layers,
     .max_position = 131072,
     .num_kv_heads = 8,
     .head_dim = std::nullopt,
     .bos_id = 1,
     .eos_id = 2},
    {.name = "Qwen2ForCausalLM",
     .attention_bias = LlamaArchitecture::AttentionBias::qkv,
     .mlp_bias = LlamaArchitecture::MlpBias::none,
     .qk_norm = LlamaArchitecture::QkNorm::none,
     .window = LlamaArchitecture::Window::some_layers,
     .max_position = 32768,
     .num_kv_heads = 32,
     .head_dim = std::nullopt,
     .bos_id = std::nullopt,
     .eos_id = std::nullopt},
    {.name = "Qwen3ForCausalLM",
     .attention_bias = LlamaArchitecture::AttentionBias::configured,
     .mlp_bias = LlamaArchitecture::MlpBias::none,
     .qk_norm = LlamaArchitecture::QkNorm::per_head,
     .window = LlamaArchitecture::Window::some_layers,
     .max_position = 32768,
     .num_kv_heads = 32,
     .head_dim = 128,
     .bos_id = std::nullopt,
     .eos_id = std::nullopt},
};

}  // namespace heddle
