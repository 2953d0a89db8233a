// The numbers of a model of the Llama family, from config.json as transformers 4 and 5 write it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/rope_config.h"

namespace heddle {

// Every value lies within the limits of llama_config.cpp, so that no product of two sizes overflows std::int64_t, and
// num_heads * head_dim does not overflow int.
struct LlamaConfig {
  int num_layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;      // even; given, or what the architecture takes it for
  std::int64_t vocab_size = 0;
  std::int64_t max_position = 0;  // positions the model was made for, stretched ones among them
  RopeConfig rope;
  std::vector<int> windows;  // [num_layers]: keys that a token sees; 0: all up to its own
  double rms_norm_eps = 0;
  bool qkv_bias = false;
  bool output_bias = false;  // of attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;               // RMSNorm of each head of q and k, before they are turned
  bool tie_embeddings = false;        // the output matrix is the embedding
  std::vector<std::int32_t> eos_ids;  // may be empty
  std::optional<std::int32_t> bos_id;
};

// `config` is config.json whole, of one of kLlamaArchitectures (llama_architecture.h). Fields that change nothing are
// ignored, and missing ones are what transformers takes them for. Throws InputError that names the field, what is
// expected and what was found when a size is missing or absurd; and as unsupported_llama_features says.
LlamaConfig parse_llama_config(const JsonField& config);

// What the config asks for and this Llama cannot do: one sentence a field, with the value found and what is supported;
// empty when all is well.
std::vector<std::string> unsupported_llama_features(const JsonField& config);

}  // namespace heddle
