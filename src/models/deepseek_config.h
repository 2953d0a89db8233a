// The parameters of DeepSeek-V2, V2-Lite and models of DeepSeek-V3's architecture, from config.json as transformers 4
// and 5 write it: latent attention, and experts behind a few dense layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "kernels/moe/route.h"
#include "models/rope_config.h"

namespace heddle {

// Every value is within the limits of config_fields.h.
struct DeepseekConfig {
  int num_layers = 0;
  int num_dense_layers = 0;  // the first ones, up to num_layers
  int hidden = 0;
  int num_heads = 0;
  int q_lora_rank = 0;  // 0: queries are one projection
  int latent_dim = 0;   // kv_lora_rank; with rope_dim at most kMaxHeadDim
  int nope_dim = 0;
  int rope_dim = 0;  // even
  int value_dim = 0;
  int intermediate = 0;         // of a dense layer
  int expert_intermediate = 0;  // of an expert
  int num_experts = 0;          // routed ones, of each layer that is not dense
  int num_shared_experts = 0;   // may be 0
  RouteRule rule;
  bool choice_bias = false;  // whether the router's choice has a bias
  int num_mtp_layers = 0;    // heads that predict several tokens, in layers behind the last one where a folder has them
  std::int64_t vocab_size = 0;
  std::int64_t max_position = 0;  // positions the model was made for, including a stretched context
  RopeConfig rope;
  float score_scale = 0;  // of the softmax, YaRN's mscale included
  double rms_norm_eps = 0;
  bool tie_embeddings = false;
  std::vector<std::int32_t> eos_ids;  // may be empty

  bool has_experts() const { return num_dense_layers < num_layers; }
};

// Parses `config`, a whole config.json of DeepseekV2ForCausalLM or DeepseekV3ForCausalLM; missing fields have the
// defaults of transformers. Throws InputError that names the field, what is expected and what was found when a size is
// missing or out of range, where groups, experts and ranks do not fit, and for unsupported_deepseek_features.
DeepseekConfig parse_deepseek_config(const JsonField& config);

std::vector<std::string> unsupported_deepseek_features(const JsonField& config);

}  // namespace heddle
