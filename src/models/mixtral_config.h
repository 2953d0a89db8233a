// The parameters of Mixtral, from config.json as transformers 4 and 5 write it: attention of the Llama family, and
// experts instead of one feed-forward.
#pragma once

#include "base/json.h"
#include "models/llama_config.h"

namespace heddle {

struct MixtralConfig {
  LlamaConfig llama;    // its intermediate is an expert's
  int num_experts = 0;  // at most kMaxExperts
  int top_k = 0;        // experts of a token, at most num_experts and kMaxTopExperts
};

// Parses `config`, a whole config.json of MixtralForCausalLM; missing fields have the defaults of transformers. Throws
// InputError that names the field, what is expected and what was found.
MixtralConfig parse_mixtral_config(const JsonField& config);

std::vector<std::string> unsupported_mixtral_features(const JsonField& config);

}  // namespace heddle
