#include "models/mixtral_config.h"

#include <fmt/format.h>

#include "kernels/moe/route.h"
#include "models/config_fields.h"

namespace heddle {
namespace {

constexpr LlamaArchitecture kMixtralAttention{.name = "MixtralForCausalLM",
                                              .attention_bias = LlamaArchitecture::AttentionBias::none,
                                              .mlp_bias = LlamaArchitecture::MlpBias::none,
                                              .qk_norm = LlamaArchitecture::QkNorm::none,
                                              .window = LlamaArchitecture::Window::configured,
                                              .max_position = 131072,
                                              .num_kv_heads = 8,
                                              .head_dim = std::nullopt,
                                              .bos_id = 1,
                                              .eos_id = 2};

// Defaults of missing fields that differ from Llama's.
constexpr double kMixtralTheta = 1e6;
constexpr double kMixtralRmsNormEps = 1e-5;
constexpr int kMixtralExperts = 8;
constexpr int kMixtralTopExperts = 2;

}  // namespace

MixtralConfig parse_mixtral_config(const JsonField& config) {
  MixtralConfig mixtral{.llama = parse_llama_config(config, kMixtralAttention)};
  if (!has_rope_theta(config)) mixtral.llama.rope.theta = kMixtralTheta;
  if (is_missing(config, "rms_norm_eps")) mixtral.llama.rms_norm_eps = kMixtralRmsNormEps;
  mixtral.num_experts = size_or(config, "num_local_experts", kMaxExperts, kMixtralExperts);
  mixtral.top_k = size_or(config, "num_experts_per_tok", kMaxTopExperts, kMixtralTopExperts);
  if (mixtral.top_k > mixtral.num_experts)
    config.find("num_experts_per_tok")
        .value_or(config)
        .fail(fmt::format("{} is above num_local_experts {}", mixtral.top_k, mixtral.num_experts));
  return mixtral;
}

std::vector<std::string> unsupported_mixtral_features(const JsonField& config) {
  return unsupported_llama_features(config, kMixtralAttention);
}

}  // namespace heddle
