#include "engine/generation_defaults.h"

#include <limits>

namespace heddle {

GenerationDefaults read_generation_defaults(const JsonField& config) {
  constexpr double kMost = std::numeric_limits<double>::max();
  constexpr std::int64_t kMostId = std::numeric_limits<std::int32_t>::max();
  GenerationDefaults defaults;
  SamplingParams& sampling = defaults.sampling;
  const auto number = [&](std::string_view key, double min, double max, double& value) {
    if (const auto field = config.find(key)) value = field->number(min, max);
  };

  number("repetition_penalty", 1e-3, 1e3, sampling.repetition_penalty);
  const auto do_sample = config.find("do_sample");
  if (do_sample && do_sample->boolean()) {
    sampling.temperature = 1;
    number("temperature", 0, kMost, sampling.temperature);
    number("top_p", std::numeric_limits<double>::denorm_min(), 1, sampling.top_p);
    number("min_p", 0, 1, sampling.min_p);
    if (const auto top_k = config.find("top_k"))
      sampling.top_k = static_cast<std::int32_t>(top_k->integer(0, std::numeric_limits<std::int32_t>::max()));
  }
  if (const auto eos = config.find("eos_token_id")) {
    const auto add = [&](const JsonField& id) {
      defaults.eos_ids.push_back(static_cast<std::int32_t>(id.integer(0, kMostId)));
    };
    if (eos->is_array())
      for (const JsonField& id : eos->elements()) add(id);
    else
      add(*eos);
  }
  return defaults;
}

}  // namespace heddle
