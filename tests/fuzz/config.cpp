// Input: a config.json, which is read as generation_config.json, too.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/generation_defaults.h"
#include "fuzz/target.h"
#include "models/llama_architecture.h"
#include "models/llama_config.h"
#include "models/registry.h"

namespace heddle::fuzz {
namespace {

void check_llama(const JsonField& config) {
  const LlamaConfig llama = parse_llama_config(config);
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

// Of a config whose architecture the registry knows. A family without properties of its own fails here, so that none
// goes unchecked.
void check_known(const JsonField& config) {
  const std::string name = architecture_of(config);
  if (std::ranges::find(kLlamaArchitectures, name, &LlamaArchitecture::name) != std::end(kLlamaArchitectures))
    check_llama(config);
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
