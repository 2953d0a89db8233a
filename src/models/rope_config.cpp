#include "models/rope_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::int64_t kMaxRopePosition = 1 << 24;  // float32 represents every position exactly up to here
constexpr double kMaxFactor = 1e6;

constexpr std::string_view kRopeTypes[] = {"default", "linear", "dynamic", "llama3", "yarn"};

// rope_scaling if it has content, as in transformers 5, which reads both.
std::optional<JsonField> parameters_of(const JsonField& config) {
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    auto field = config.find(key);
    if (!field) continue;
    if (!field->is_object()) field->fail_expected("an object");
    if (!field->value().empty()) return field;
  }
  return std::nullopt;
}

// Before transformers 4.43 the field was called "type".
std::optional<JsonField> type_of(const JsonField& parameters) {
  const auto type = parameters.find("rope_type");
  return type ? type : parameters.find("type");
}

double number_or(const JsonField& parameters, std::string_view key, double min, double max, double otherwise) {
  const auto field = parameters.find(key);
  return field ? field->number(min, max) : otherwise;
}

// max_position_embeddings before the context was stretched. Some configs have it beside the other sizes; that value
// takes precedence.
std::int64_t original_max_position_of(const JsonField& config, const JsonField& parameters, std::int64_t max_position) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  for (const JsonField& parent : {config, parameters})
    if (const auto field = parent.find(kKey)) return field->integer(1, kMaxRopePosition);
  return max_position;
}

double factor_of(const JsonField& parameters) {
  return parameters.at("factor").number(1, kMaxFactor);
}

Llama3Rope parse_llama3(const JsonField& config, const JsonField& parameters, std::int64_t max_position) {
  const Llama3Rope rope{.factor = factor_of(parameters),
                        .low_freq_factor = parameters.at("low_freq_factor").number(1e-6, kMaxFactor),
                        .high_freq_factor = parameters.at("high_freq_factor").number(1e-6, kMaxFactor),
                        .original_max_position = original_max_position_of(config, parameters, max_position)};
  if (rope.high_freq_factor <= rope.low_freq_factor)
    parameters.at("high_freq_factor")
        .fail(fmt::format("{} is not above low_freq_factor {}", rope.high_freq_factor, rope.low_freq_factor));
  return rope;
}

YarnRope parse_yarn(const JsonField& config, const JsonField& parameters, std::int64_t max_position) {
  YarnRope rope;
  rope.original_max_position = original_max_position_of(config, parameters, max_position);
  // transformers requires the field; null means the ratio of the two lengths.
  rope.factor = parameters.value().contains("factor")
                    ? number_or(parameters, "factor", 1, kMaxFactor,
                                static_cast<double>(max_position) / static_cast<double>(rope.original_max_position))
                    : factor_of(parameters);
  // 0 means the same as a missing value, here and for the two mscales below.
  const auto beta = [&](std::string_view key, double otherwise) {
    const auto field = parameters.find(key);
    return !field || field->value() == 0 ? otherwise : field->number(1e-6, kMaxFactor);
  };
  rope.beta_fast = beta("beta_fast", rope.beta_fast);
  rope.beta_slow = beta("beta_slow", rope.beta_slow);
  if (parameters.value().contains("truncate")) rope.truncate = parameters.at("truncate").boolean();

  const auto temperature = [&](double mscale) {
    return rope.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0;
  };
  const double mscale = number_or(parameters, "mscale", 0, 1000, 0);
  const double mscale_all_dim = number_or(parameters, "mscale_all_dim", 0, 1000, 0);
  const double inferred =
      mscale != 0 && mscale_all_dim != 0 ? temperature(mscale) / temperature(mscale_all_dim) : temperature(1);
  rope.attention_factor = number_or(parameters, "attention_factor", 1e-6, 1000, inferred);
  return rope;
}

// theta^(2 i / head_dim): a float32 power, computed in float64 so that it does not depend on the C library.
std::vector<float> powers_of(double theta, int head_dim) {
  std::vector<float> powers;
  for (int i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    powers.push_back(
        static_cast<float>(std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent))));
  }
  return powers;
}

void scale_frequencies(std::monostate, double, std::vector<float>&) {}

void scale_frequencies(const LinearRope& rope, double, std::vector<float>& frequencies) {
  for (float& frequency : frequencies) frequency /= static_cast<float>(rope.factor);
}

void scale_frequencies(const Llama3Rope& rope, double, std::vector<float>& frequencies) {
  constexpr double kTwoPi = 6.283185307179586;
  const auto original = static_cast<double>(rope.original_max_position);
  const auto longest = static_cast<float>(original / rope.low_freq_factor);
  const auto shortest = static_cast<float>(original / rope.high_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  for (float& frequency : frequencies) {
    const float wavelength = (1.0f / frequency) * static_cast<float>(kTwoPi);
    if (wavelength > longest) {
      frequency /= factor;
    } else if (wavelength >= shortest) {
      const float turns = (1.0f / wavelength) * static_cast<float>(original);
      const float smooth = (turns - static_cast<float>(rope.low_freq_factor)) /
                           static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

void scale_frequencies(const YarnRope& rope, double theta, std::vector<float>& frequencies) {
  constexpr double kTwoPi = 6.283185307179586;
  const int num_pairs = static_cast<int>(frequencies.size());
  const double head_dim = 2.0 * num_pairs;
  const std::vector<float> powers = powers_of(theta, 2 * num_pairs);
  // The pair (a fraction in general) that makes this number of turns in the original context.
  const auto pair_of = [&](double num_turns) {
    return head_dim * std::log(static_cast<double>(rope.original_max_position) / (num_turns * kTwoPi)) /
           (2 * std::log(theta));
  };
  double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1);
  if (low == high) high += 0.001;

  for (int i = 0; i < num_pairs; ++i) {
    const auto pair = static_cast<std::size_t>(i);
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float kept = 1.0f - ramp;
    const float stretched = 1.0f / (static_cast<float>(rope.factor) * powers[pair]);
    frequencies[pair] = stretched * (1.0f - kept) + frequencies[pair] * kept;
  }
}

}  // namespace

RopeConfig parse_rope_config(const JsonField& config, std::int64_t max_position) {
  RopeConfig rope;
  const auto parameters = parameters_of(config);
  auto theta = parameters ? parameters->find("rope_theta") : std::nullopt;
  if (!theta) theta = config.find("rope_theta");
  if (theta) rope.theta = theta->number(1, 1e12);
  const auto type = parameters ? type_of(*parameters) : std::nullopt;
  if (!type) return rope;

  const std::string name = type->text();
  if (name == "linear") rope.scaling = LinearRope{factor_of(*parameters)};
  if (name == "dynamic") rope.dynamic_factor = factor_of(*parameters);
  if (name == "llama3") rope.scaling = parse_llama3(config, *parameters, max_position);
  if (name == "yarn") {
    if (rope.theta == 1) type->fail("\"yarn\" needs a rope_theta above 1");
    rope.scaling = parse_yarn(config, *parameters, max_position);
  }
  return rope;
}

void find_unsupported_rope(const JsonField& config, UnsupportedFeatures& features) {
  features.only(config, "partial_rotary_factor", {1});
  const auto parameters = parameters_of(config);
  if (!parameters) return;
  if (const auto type = type_of(*parameters)) {
    if (std::ranges::find(kRopeTypes, type->text()) == std::end(kRopeTypes))
      features.refuse(*type, fmt::format("\"{}\"", fmt::join(kRopeTypes, "\", \"")));
  } else if (parameters->find("factor")) {
    parameters->fail("has a factor but no rope_type");
  }
  for (const auto& [key, member] : parameters->members())
    // A model with several kinds of layers has one object per kind.
    if (member.is_object()) features.refuse(member, "one set of parameters for all layers");
  features.only(*parameters, "partial_rotary_factor", {1});
}

std::int64_t stretched_max_position(const RopeConfig& rope, std::int64_t max_position) {
  const auto times = [](std::int64_t position, double factor) {
    return static_cast<std::int64_t>(
        std::min(std::floor(static_cast<double>(position) * factor), static_cast<double>(kMaxRopePosition)));
  };
  if (const auto* linear = std::get_if<LinearRope>(&rope.scaling)) return times(max_position, linear->factor);
  if (const auto* yarn = std::get_if<YarnRope>(&rope.scaling))
    return std::max(max_position, times(yarn->original_max_position, yarn->factor));
  return max_position;
}

RopeFrequencies rope_frequencies(const RopeConfig& rope, int head_dim) {
  RopeFrequencies result{.inv_freq = powers_of(rope.theta, head_dim)};
  for (float& power : result.inv_freq) power = 1.0f / power;
  std::visit([&](const auto& scaling) { scale_frequencies(scaling, rope.theta, result.inv_freq); }, rope.scaling);
  if (const auto* yarn = std::get_if<YarnRope>(&rope.scaling))
    result.scale = static_cast<float>(yarn->attention_factor);
  return result;
}

}  // namespace heddle
