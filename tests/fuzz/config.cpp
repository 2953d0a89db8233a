// Input: a config.json, which is read as generation_config.json, too.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/generation_defaults.h"
#include "fuzz/target.h"
#include "models/deepseek_config.h"
#include "models/llama_architecture.h"
#include "models/llama_config.h"
#include "models/mixtral_config.h"
#include "models/registry.h"

namespace heddle::fuzz {
namespace {

void check_sizes(const JsonField& config, const LlamaConfig& llama) {
  expect(llama.num_layers > 0 && llama.hidden > 0 && llama.intermediate > 0 && llama.vocab_size > 0, "a size of 0");
  expect(llama.num_kv_heads > 0 && llama.num_heads % llama.num_kv_heads == 0, "{} heads, {} KV heads", llama.num_heads,
         llama.num_kv_heads);
  expect(llama.head_dim > 0 && llama.head_dim % 2 == 0, "a head_dim of {}", llama.head_dim);
  expect(std::int64_t{llama.num_heads} * llama.head_dim <= std::numeric_limits<int>::max(), "too wide for int");
  expect(llama.windows.size() == static_cast<std::size_t>(llama.num_layers), "{} windows", llama.windows.size());
  for (const int window : llama.windows) expect(window >= 0, "a window of {}", window);
  for (const std::int32_t id : llama.eos_ids) expect(id >= 0 && id < llama.vocab_size, "an EOS of {}", id);
  const RopeFrequencies rope = rope_frequencies(llama.rope, llama.head_dim);
  expect(rope.inv_freq.size() == static_cast<std::size_t>(llama.head_dim / 2), "{} frequencies", rope.inv_freq.size());
  for (const float frequency : rope.inv_freq) expect(std::isfinite(frequency), "a frequency of {}", frequency);
  expect(std::isfinite(rope.scale) && llama.max_position > 0, "a scale of {}", rope.scale);
  expect(unsupported(config).empty(), "takes what it says is unsupported");
}

void check_rule(const RouteRule& rule, int num_experts) {
  expect(num_experts > 0 && num_experts <= kMaxExperts, "{} experts", num_experts);
  expect(rule.num_groups > 0 && num_experts % rule.num_groups == 0 && rule.top_groups > 0 &&
             rule.top_groups <= rule.num_groups,
         "{} experts, the best {} of {} groups", num_experts, rule.top_groups, rule.num_groups);
  expect(
      rule.top_k > 0 && rule.top_k <= kMaxTopExperts && rule.top_k <= num_experts / rule.num_groups * rule.top_groups,
      "the best {} of {} experts", rule.top_k, num_experts);
  expect(std::isfinite(rule.scale) && rule.scale > 0, "a scale of {}", rule.scale);
}

void check_mixtral(const JsonField& config) {
  const MixtralConfig mixtral = parse_mixtral_config(config);
  check_sizes(config, mixtral.llama);
  check_rule({.top_k = mixtral.top_k}, mixtral.num_experts);
}

void check_deepseek(const JsonField& config) {
  const DeepseekConfig deepseek = parse_deepseek_config(config);
  for (const std::int64_t size :
       {std::int64_t{deepseek.num_layers}, std::int64_t{deepseek.hidden}, std::int64_t{deepseek.num_heads},
        std::int64_t{deepseek.latent_dim}, std::int64_t{deepseek.nope_dim}, std::int64_t{deepseek.value_dim},
        std::int64_t{deepseek.intermediate}, deepseek.vocab_size, deepseek.max_position})
    expect(size > 0, "a size of {}", size);
  expect(deepseek.rope_dim > 0 && deepseek.rope_dim % 2 == 0, "{} rotated elements", deepseek.rope_dim);
  expect(deepseek.num_dense_layers >= 0 && deepseek.num_dense_layers <= deepseek.num_layers, "{} dense layers",
         deepseek.num_dense_layers);
  expect(std::isfinite(deepseek.score_scale) && deepseek.score_scale > 0, "scores times {}", deepseek.score_scale);
  if (deepseek.has_experts()) check_rule(deepseek.rule, deepseek.num_experts);
  const RopeFrequencies rope = rope_frequencies(deepseek.rope, deepseek.rope_dim);
  for (const float frequency : rope.inv_freq) expect(std::isfinite(frequency), "a frequency of {}", frequency);
  for (const std::int32_t id : deepseek.eos_ids) expect(id >= 0 && id < deepseek.vocab_size, "an EOS of {}", id);
  expect(unsupported(config).empty(), "takes what it says is unsupported");
}

// Of a config whose architecture the registry knows. A family without properties of its own fails here, so that none
// goes unchecked.
void check_known(const JsonField& config) {
  const std::string name = architecture_of(config);
  if (std::ranges::find(kLlamaArchitectures, name, &LlamaArchitecture::name) != std::end(kLlamaArchitectures))
    check_sizes(config, parse_llama_config(config));
  else if (name == "MixtralForCausalLM")
    check_mixtral(config);
  else if (name.starts_with("Deepseek"))
    check_deepseek(config);
  else
    expect(false, "tests/fuzz/config.cpp has no properties of {}", name);
  const ModelDescription sizes = describe_model(config);
  for (const auto& size : {sizes.layers, sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.vocab_size})
    expect(size.value_or(0) > 0, "{} describes a size of {}", name, size.value_or(0));
}

void check_generation(const JsonField& config) {
  const GenerationDefaults defaults = read_generation_defaults(config);
  const SamplingParams& sampling = defaults.sampling;
  expect(sampling.temperature >= 0 && sampling.top_k >= 0 && sampling.top_p > 0 && sampling.top_p <= 1 &&
             sampling.min_p >= 0 && sampling.min_p <= 1 && sampling.repetition_penalty > 0,
         "sampling parameters that the sampler does not take");
  for (const std::int32_t id : defaults.eos_ids) expect(id >= 0, "an EOS of {}", id);
}

}  // namespace

void fuzz_config(std::string_view input) {
  accepts([&] {
    const nlohmann::json value = parse_json(input, "config.json");
    const JsonField config(value, "config.json");
    if (!config.is_object()) return;  // as Checkpoint ensures
    describe_model(config);
    accepts([&] {
      for (const std::string& sentence : unsupported(config)) check_message(sentence);
      const auto known = known_architectures();
      if (std::ranges::find(known, architecture_of(config)) != known.end()) check_known(config);
    });
    accepts([&] { check_generation(config); });
  });
}

}  // namespace heddle::fuzz
