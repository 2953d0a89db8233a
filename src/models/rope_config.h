// How fast rotary positions turn, and how they are stretched to contexts longer than those of the first training: from
// config.json as transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters) write it.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "base/json.h"
#include "models/unsupported_features.h"

namespace heddle {

// Every position counts 1 / factor (Chen et al., 2023, "Extending Context Window ... via Positional Interpolation").
struct LinearRope {
  double factor = 1;
};

// Llama 3.1: wavelengths above original_max_position / low_freq_factor are stretched, those below
// original_max_position / high_freq_factor are not, those between in part.
struct Llama3Rope {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;  // above low_freq_factor
  std::int64_t original_max_position = 0;
};

// YaRN (Peng et al., 2023): pairs that turn more often than beta_fast times in the original context are not stretched,
// those below beta_slow are, those between in part; cosine and sine are scaled by attention_factor.
struct YarnRope {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;         // bounds of the part between are rounded to whole pairs
  double attention_factor = 1;  // given, or what transformers makes of factor, mscale and mscale_all_dim
  std::int64_t original_max_position = 0;
};

struct RopeConfig {
  double theta = 10000;
  std::variant<std::monostate, LinearRope, Llama3Rope, YarnRope> scaling;  // monostate: none
};

// rope_type "dynamic" (NTK) is read as no scaling: it changes the frequencies only beyond max_position_embeddings, and
// there depending on how long a sequence was at the time; sequences here end before (docs/limits.md). Throws InputError
// that names the field when a value is missing or absurd. `max_position`: what config.json gives as
// max_position_embeddings.
RopeConfig parse_rope_config(const JsonField& config, std::int64_t max_position);

// Refuses types of scaling that parse_rope_config does not know. Throws InputError where fields have wrong types.
void find_unsupported_rope(const JsonField& config, UnsupportedFeatures& features);

// Positions the model was made for: `max_position` where that counts the stretched context already, more where
// factor says so, as vLLM reads it.
std::int64_t stretched_max_position(const RopeConfig& rope, std::int64_t max_position);

// The angle of pair i at position p is p * inv_freq[i]; `scale` is on its cosine and sine (kernels/attention/rope.h).
struct RopeFrequencies {
  std::vector<float> inv_freq;  // [head_dim / 2]
  float scale = 1;
};

// In float32, step by step as transformers rounds it.
RopeFrequencies rope_frequencies(const RopeConfig& rope, int head_dim);

}  // namespace heddle
