// Shapes of well-known models, by Heddle's names for them, for synthetic models, benchmarks and simulations. Plain data
// without dependencies.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace heddle {

// The class in transformers that implements it, which determines the names of its tensors.
enum class Family : std::uint8_t {
  llama,
  mistral,
  qwen2,        // biases on q, k and v
  qwen3,        // norms on the heads of q and k
  mixtral,      // experts
  deepseek_v2,  // experts behind dense layers, latent attention
};

// "llama3" scaling of rotary frequencies; factor 0: none. All models have the low and high frequency factors 1 and 4.
struct Llama3Scaling {
  double factor = 0;
  int original_max_position = 0;
};

// "yarn" scaling as DeepSeek-V2 has it, with beta_fast 32 and beta_slow 1; factor 0: none.
struct YarnScaling {
  double factor = 0;
  int original_max_position = 0;
  double mscale = 0;  // mscale_all_dim, too
};

// Of the layers with experts; count 0: no layer has.
struct ExpertSizes {
  int count = 0;      // routed
  int per_token = 0;  // of them
  int shared = 0;
  int intermediate = 0;      // of each
  int num_dense_layers = 0;  // before them
};

// Of latent attention without q_lora; latent_dim 0: attention with keys and values.
struct LatentSizes {
  int latent_dim = 0;  // kv_lora_rank
  int nope_dim = 0;
  int rope_dim = 0;
  int value_dim = 0;
};

// As in the model's own config.json; copies in public repositories were compared.
struct KnownShape {
  std::string_view name;        // in Heddle
  std::string_view real_model;  // on Hugging Face; empty: none
  Family family = Family::llama;
  std::int64_t vocab_size = 0;
  int hidden = 0;
  int intermediate = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int num_layers = 0;
  double rope_theta = 0;
  Llama3Scaling rope_scaling;
  YarnScaling yarn_scaling;
  int max_position = 0;
  double rms_norm_eps = 0;
  bool tie_embeddings = false;
  int sliding_window = 0;  // positions that a token attends to; 0: all
  std::int32_t bos_id = 0;
  std::array<std::int32_t, 3> eos_ids{-1, -1, -1};  // -1: none
  DType dtype = DType::bfloat16;                    // of the original weights
  ExpertSizes experts;
  LatentSizes latent;

  constexpr bool qkv_bias() const { return family == Family::qwen2; }
  constexpr bool qk_norm() const { return family == Family::qwen3; }
};

inline constexpr std::array<KnownShape, 15> kKnownShapes{{
    {.name = "llama-2-7b",
     .real_model = "meta-llama/Llama-2-7b-hf",
     .vocab_size = 32000,
     .hidden = 4096,
     .intermediate = 11008,
     .num_heads = 32,
     .num_kv_heads = 32,
     .head_dim = 128,
     .num_layers = 32,
     .rope_theta = 10000,
     .max_position = 4096,
     .rms_norm_eps = 1e-5,
     .bos_id = 1,
     .eos_ids = {2, -1, -1},
     .dtype = DType::float16},
    {.name = "llama-2-13b",
     .real_model = "meta-llama/Llama-2-13b-hf",
     .vocab_size = 32000,
     .hidden = 5120,
     .intermediate = 13824,
     .num_heads = 40,
     .num_kv_heads = 40,
     .head_dim = 128,
     .num_layers = 40,
     .rope_theta = 10000,
     .max_position = 4096,
     .rms_norm_eps = 1e-5,
     .bos_id = 1,
     .eos_ids = {2, -1, -1},
     .dtype = DType::float16},
    {.name = "llama-3-8b",
     .real_model = "meta-llama/Meta-Llama-3-8B",
     .vocab_size = 128256,
     .hidden = 4096,
     .intermediate = 14336,
     .num_heads = 32,
     .num_kv_heads = 8,
     .head_dim = 128,
     .num_layers = 32,
     .rope_theta = 500000,
     .max_position = 8192,
     .rms_norm_eps = 1e-5,
     .bos_id = 128000,
     .eos_ids = {128001, -1, -1}},
    {.name = "llama-3.2-1b",
     .real_model = "meta-llama/Llama-3.2-1B",
     .vocab_size = 128256,
     .hidden = 2048,
     .intermediate = 8192,
     .num_heads = 32,
     .num_kv_heads = 8,
     .head_dim = 64,
     .num_layers = 16,
     .rope_theta = 500000,
     .rope_scaling = {.factor = 32, .original_max_position = 8192},
     .max_position = 131072,
     .rms_norm_eps = 1e-5,
     .tie_embeddings = true,
     .bos_id = 128000,
     .eos_ids = {128001, -1, -1}},
    {.name = "llama-3.3-70b",
     .real_model = "meta-llama/Llama-3.3-70B-Instruct",
     .vocab_size = 128256,
     .hidden = 8192,
     .intermediate = 28672,
     .num_heads = 64,
     .num_kv_heads = 8,
     .head_dim = 128,
     .num_layers = 80,
     .rope_theta = 500000,
     .rope_scaling = {.factor = 8, .original_max_position = 8192},
     .max_position = 131072,
     .rms_norm_eps = 1e-5,
     .bos_id = 128000,
     .eos_ids = {128001, 128008, 128009}},
    {.name = "codellama-34b",
     .real_model = "codellama/CodeLlama-34b-hf",
     .vocab_size = 32000,
     .hidden = 8192,
     .intermediate = 22016,
     .num_heads = 64,
     .num_kv_heads = 8,
     .head_dim = 128,
     .num_layers = 48,
     .rope_theta = 1000000,
     .max_position = 16384,
     .rms_norm_eps = 1e-5,
     .bos_id = 1,
     .eos_ids = {2, -1, -1},
     .dtype = DType::float16},  // Llama 2's: the compared copies do not state it
    {.name = "qwen2-72b",
     .real_model = "Qwen/Qwen2-72B",
     .family = Family::qwen2,
     .vocab_size = 152064,
     .hidden = 8192,
     .intermediate = 29568,
     .num_heads = 64,
     .num_kv_heads = 8,
     .head_dim = 128,
     .num_layers = 80,
     .rope_theta = 1000000,
     .max_position = 131072,
     .rms_norm_eps = 1e-5,
     .bos_id = 151643,
     .eos_ids = {151643, -1, -1}},
    {.name = "qwen2.5-7b",
     .real_model = "Qwen/Qwen2.5-7B",
     .family = Family::qwen2,
     .vocab_size = 152064,
     .hidden = 3584,
     .intermediate = 18944,
     .num_heads = 28,
     .num_kv_heads = 4,
     .head_dim = 128,
     .num_layers = 28,
     .rope_theta = 1000000,
     .max_position = 131072,
     .rms_norm_eps = 1e-6,
     .bos_id = 151643,
     .eos_ids = {151643, -1, -1}},
    {.name = "qwen2.5-72b",
     .real_model = "Qwen/Qwen2.5-72B",
     .family = Family::qwen2,
     .vocab_size = 152064,
     .hidden = 8192,
     .intermediate = 29568,
     .num_heads = 64,
     .num_kv_heads = 8,
     .head_dim = 128,
     .num_layers = 80,
     .rope_theta = 1000000,
     .max_position = 131072,
     .rms_norm_eps = 1e-5,
     .bos_id = 151643,
     .eos_ids = {151643, -1, -1}},
    {.name = "qwen3-8b",
     .real_model = "Qwen/Qwen3-8B",
     .family = Family::qwen3,
     .vocab_size = 151936,
     .hidden = 4096,
     .intermediate = 12288,
     .num_heads = 32,
     .num_kv_heads = 8,
     .head_dim = 128,
     .num_layers = 36,
     .rope_theta = 1000000,
     .max_position = 40960,
     .rms_norm_eps = 1e-6,
     .bos_id = 151643,
     .eos_ids = {151645, -1, -1}},
    {.name = "mistral-7b",  // v0.1: later versions have no sliding window
     .real_model = "mistralai/Mistral-7B-v0.1",
     .family = Family::mistral,
     .vocab_size = 32000,
     .hidden = 4096,
     .intermediate = 14336,
     .num_heads = 32,
     .num_kv_heads = 8,
     .head_dim = 128,
     .num_layers = 32,
     .rope_theta = 10000,
     .max_position = 32768,
     .rms_norm_eps = 1e-5,
     .sliding_window = 4096,
     .bos_id = 1,
     .eos_ids = {2, -1, -1}},
    {.name = "mixtral-8x7b",
     .real_model = "mistralai/Mixtral-8x7B-v0.1",
     .family = Family::mixtral,
     .vocab_size = 32000,
     .hidden = 4096,
     .intermediate = 14336,
     .num_heads = 32,
     .num_kv_heads = 8,
     .head_dim = 128,
     .num_layers = 32,
     .rope_theta = 1000000,
     .max_position = 32768,
     .rms_norm_eps = 1e-5,
     .bos_id = 1,
     .eos_ids = {2, -1, -1},
     .experts = {.count = 8, .per_token = 2, .intermediate = 14336}},
    {.name = "mixtral-8x22b",
     .real_model = "mistralai/Mixtral-8x22B-v0.1",
     .family = Family::mixtral,
     .vocab_size = 32000,
     .hidden = 6144,
     .intermediate = 16384,
     .num_heads = 48,
     .num_kv_heads = 8,
     .head_dim = 128,
     .num_layers = 56,
     .rope_theta = 1000000,
     .max_position = 65536,
     .rms_norm_eps = 1e-5,
     .bos_id = 1,
     .eos_ids = {2, -1, -1},
     .experts = {.count = 8, .per_token = 2, .intermediate = 16384}},
    {.name = "deepseek-v2-lite",
     .real_model = "deepseek-ai/DeepSeek-V2-Lite",
     .family = Family::deepseek_v2,
     .vocab_size = 102400,
     .hidden = 2048,
     .intermediate = 10944,
     .num_heads = 16,
     .num_kv_heads = 16,
     .head_dim = 192,
     .num_layers = 27,
     .rope_theta = 10000,
     .yarn_scaling = {.factor = 40, .original_max_position = 4096, .mscale = 0.707},
     .max_position = 163840,
     .rms_norm_eps = 1e-6,
     .bos_id = 100000,
     .eos_ids = {100001, -1, -1},
     .experts = {.count = 64, .per_token = 6, .shared = 2, .intermediate = 1408, .num_dense_layers = 1},
     .latent = {.latent_dim = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128}},
    {.name = "tiny",  // not a real model: for tests and first experiments
     .vocab_size = 1000,
     .hidden = 128,
     .intermediate = 384,
     .num_heads = 4,
     .num_kv_heads = 2,
     .head_dim = 32,
     .num_layers = 4,
     .rope_theta = 10000,
     .max_position = 2048,
     .rms_norm_eps = 1e-5,
     .bos_id = 1,
     .eos_ids = {2, -1, -1}},
}};

// Null for an unknown name.
constexpr const KnownShape* find_known_shape(std::string_view name) {
  for (const KnownShape& shape : kKnownShapes)
    if (shape.name == name) return &shape;
  return nullptr;
}

// The eos ids without unused entries.
constexpr std::span<const std::int32_t> eos_ids_of(const KnownShape& shape) {
  std::size_t count = 0;
  while (count < shape.eos_ids.size() && shape.eos_ids[count] >= 0) ++count;
  return std::span(shape.eos_ids).first(count);
}

}  // namespace heddle
