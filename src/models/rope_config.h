// Parameters of rotary positions (RoPE) and of their scaling to contexts longer than those of the first training, from
// config.json as transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters) write it.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "base/json.h"
#include "models/unsupported_features.h"

namespace heddle {

// Every position is divided by factor (Chen et al., 2023, "Extending Context Window ... via Positional Interpolation").
struct LinearRope {
  double factor = 1;
};

// Llama 3.1: stretches wavelengths above original_max_position / low_freq_factor, keeps those below
// original_max_position / high_freq_factor, and interpolates between.
struct Llama3Rope {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;  // greater than low_freq_factor
  std::int64_t original_max_position = 0;
};

// YaRN (Peng et al., 2023): keeps pairs that make more than beta_fast turns in the original context, stretches those
// with fewer than beta_slow, and interpolates between. Cosine and sine are multiplied by attention_factor.
struct YarnRope {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;         // round the bounds of the interpolated range to whole pairs
  double attention_factor = 1;  // given, or as transformers derives it from factor, mscale and mscale_all_dim
  std::int64_t original_max_position = 0;
};

struct RopeConfig {
  double theta = 10000;
  std::variant<std::monostate, LinearRope, Llama3Rope, YarnRope> scaling;  // monostate: none
  double dynamic_factor = 0;  // of rope_type "dynamic", which has no effect here (parse_rope_config); 0: another type
};

// Treats rope_type "dynamic" (NTK) as no scaling: it changes the frequencies only beyond max_position_embeddings,
// depending on the length of the sequence, and sequences here end before that (docs/limits.md). Throws InputError that
// names the field when a value is missing or out of range. `max_position`: max_position_embeddings of config.json.
RopeConfig parse_rope_config(const JsonField& config, std::int64_t max_position);

// Reports types of scaling that parse_rope_config does not know. Throws InputError where fields have wrong types.
void find_unsupported_rope(const JsonField& config, UnsupportedFeatures& features);

// Positions the model was made for: `max_position` if that includes the stretched context, else more, by factor. vLLM
// uses the same rule.
std::int64_t stretched_max_position(const RopeConfig& rope, std::int64_t max_position);

// The angle of pair i at position p is p * inv_freq[i]; `scale` multiplies cosine and sine (kernels/attention/rope.h).
struct RopeFrequencies {
  std::vector<float> inv_freq;  // [head_dim / 2]
  float scale = 1;
};

// In float32, with the same rounding steps as transformers.
RopeFrequencies rope_frequencies(const RopeConfig& rope, int head_dim);

}  // namespace heddle
