// The parameters of a model of the Llama family, from config.json as transformers 4 and 5 write it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/llama_architecture.h"
#include "models/rope_config.h"

namespace heddle {

// Every value is within the limits of llama_config.cpp: the product of any two sizes fits std::int64_t, and num_heads *
// head_dim fits int.
struct LlamaConfig {
  int num_layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;      // even; from the config, or the architecture's default
  std::int64_t vocab_size = 0;
  std::int64_t max_position = 0;  // positions the model was made for, including a stretched context
  RopeConfig rope;
  std::vector<int> windows;  // [num_layers]: keys that a token attends to; 0: all up to its own
  double rms_norm_eps = 0;
  bool qkv_bias = false;
  bool output_bias = false;  // on attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;               // RMSNorm of each head of q and k, before the rotation
  bool tie_embeddings = false;        // the output weights are the embedding
  std::vector<std::int32_t> eos_ids;  // may be empty
  std::optional<std::int32_t> bos_id;
};

// Parses `config`, a whole config.json of one of kLlamaArchitectures (llama_architecture.h). Ignores fields without
// effect; missing fields have the defaults of transformers. Throws InputError that names the field, what is expected
// and what was found when a size is missing or out of range, and for unsupported_llama_features.
LlamaConfig parse_llama_config(const JsonField& config);

// The same of an architecture outside the table, which has Llama's attention (mixtral_config.h).
LlamaConfig parse_llama_config(const JsonField& config, const LlamaArchitecture& architecture);

// Features that the config asks for and Heddle does not support: one sentence per field, with the value found and what
// is supported; empty if there are none.
std::vector<std::string> unsupported_llama_features(const JsonField& config);
std::vector<std::string> unsupported_llama_features(const JsonField& config, const LlamaArchitecture& architecture);

}  // namespace heddle
