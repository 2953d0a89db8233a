#include "models/rope_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/llama_family.h"

namespace heddle {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kMaxPosition = 4096;

RopeConfig parse_rope(const json& config) {
  return parse_rope_config({config, "config.json"}, kMaxPosition);
}

std::string rope_error_of(const json& config) {
  try {
    parse_rope(config);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> unsupported(const json& config) {
  UnsupportedFeatures features;
  find_unsupported_rope({config, "config.json"}, features);
  return std::move(features).sentences();
}

void expect_frequencies(const json& config, int head_dim, const std::vector<float>& inv_freq, double scale) {
  const RopeConfig rope = parse_rope_config({config, "config.json"}, config["max_position_embeddings"]);
  const RopeFrequencies result = rope_frequencies(rope, head_dim);
  ASSERT_EQ(result.inv_freq.size(), inv_freq.size());
  // PyTorch's power may be off by one unit in the last place, and the frequency is its inverse, rounded again; where
  // two frequencies are mixed, a few more roundings on each side.
  for (std::size_t i = 0; i < inv_freq.size(); ++i)
    EXPECT_NEAR(result.inv_freq[i], inv_freq[i], inv_freq[i] * 6e-7) << "pair " << i;
  EXPECT_FLOAT_EQ(result.scale, static_cast<float>(scale));
}

TEST(RopeFrequencies, AreThoseOfTransformers) {
  const LlamaFamily family;
  for (const json& c : family.rope()) {
    SCOPED_TRACE(c["name"]);
    expect_frequencies(c["config"], c["config"]["head_dim"], c["inv_freq"], c["scale"]);
  }
  for (const json& c : family.cases()) {
    SCOPED_TRACE(c["name"]);
    const std::vector<float> inv_freq = family.golden(c["name"].get<std::string>() + ".inv_freq")[0];
    expect_frequencies(c["config"], 2 * static_cast<int>(inv_freq.size()), inv_freq, c["scale"]);
  }
}

TEST(RopeConfig, ReadsThetaWhereTransformers4And5PutIt) {
  EXPECT_EQ(parse_rope(json::object()).theta, 10000);
  EXPECT_EQ(parse_rope({{"rope_theta", 1e6}, {"rope_scaling", nullptr}}).theta, 1e6);
  EXPECT_EQ(parse_rope({{"rope_parameters", {{"rope_theta", 2e6}, {"rope_type", "default"}}}}).theta, 2e6);
  EXPECT_EQ(
      parse_rope({{"rope_theta", 1e6}, {"rope_parameters", {{"rope_theta", 2e6}, {"rope_type", "default"}}}}).theta,
      2e6);
  EXPECT_EQ(parse_rope({{"rope_theta", 1e6}, {"rope_parameters", {{"rope_type", "default"}}}}).theta, 1e6);
  EXPECT_EQ(parse_rope({{"rope_theta", 1e6}, {"rope_scaling", {{"type", "default"}}}}).theta, 1e6);
}

TEST(RopeConfig, RopeScalingCountsWhereItSaysAnything) {
  const json parameters = {{"rope_type", "linear"}, {"factor", 2.0}};
  const auto factor = [&](const json& scaling) {
    return std::get<LinearRope>(parse_rope({{"rope_scaling", scaling}, {"rope_parameters", parameters}}).scaling)
        .factor;
  };
  EXPECT_EQ(factor({{"type", "linear"}, {"factor", 3.0}}), 3);
  EXPECT_EQ(factor(json::object()), 2);
  EXPECT_EQ(factor(nullptr), 2);
}

TEST(RopeConfig, RopeTypeCountsMoreThanType) {
  EXPECT_TRUE(std::holds_alternative<LinearRope>(
      parse_rope({{"rope_scaling", {{"type", "yarn"}, {"rope_type", "linear"}, {"factor", 2}}}}).scaling));
}

TEST(RopeConfig, TheOriginalContextIsGivenInOneOfThreePlaces) {
  const auto original = [](const json& parameters, const json& beside) {
    json config = {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}}};
    config["rope_scaling"].update(parameters);
    config.update(beside);
    return std::get<YarnRope>(parse_rope(config).scaling).original_max_position;
  };
  constexpr const char* kKey = "original_max_position_embeddings";
  EXPECT_EQ(original(json::object(), json::object()), kMaxPosition);
  EXPECT_EQ(original({{kKey, 1024}}, json::object()), 1024);
  EXPECT_EQ(original({{kKey, 1024}}, {{kKey, 2048}}), 2048);
}

TEST(RopeConfig, TheModelsContextIsTheStretchedOne) {
  const auto context = [](const json& scaling) {
    return stretched_max_position(parse_rope({{"rope_scaling", scaling}}), kMaxPosition);
  };
  EXPECT_EQ(context(nullptr), 4096);
  EXPECT_EQ(context({{"type", "linear"}, {"factor", 2.5}}), 10240);
  EXPECT_EQ(context({{"type", "dynamic"}, {"factor", 2}}), 4096);  // beyond, it cannot be what transformers computes
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 512}};
  EXPECT_EQ(context(llama3), 4096);
  EXPECT_EQ(context({{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 4096}}), 16384);  // Qwen2.5
  EXPECT_EQ(context({{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 1024}}), 4096);   // DeepSeek
  EXPECT_EQ(context({{"type", "yarn"}, {"factor", 2}, {"original_max_position_embeddings", 1024}}), 4096);
  EXPECT_EQ(context({{"type", "linear"}, {"factor", 1e6}}), 1 << 24);
}

TEST(RopeConfig, NamesWhatIsWrong) {
  const json llama3 = {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4}};
  const json linear = {{"type", "linear"}};
  const struct {
    json base, changes;
    const char* message;
  } cases[] = {
      {linear, json::object(), "the field \"factor\" is missing"},
      {{{"type", "yarn"}}, {{"original_max_position_embeddings", 1024}}, "the field \"factor\" is missing"},
      {linear, {{"factor", 0}}, "factor: expected a number from 1 to 1000000, found 0"},
      {linear, {{"factor", -2}}, "factor: expected a number from 1 to 1000000, found -2"},
      {linear,
       {{"factor", std::numeric_limits<double>::quiet_NaN()}},
       "factor: expected a number from 1 to 1000000, found null"},
      {linear, {{"factor", "4"}}, "factor: expected a number from 1 to 1000000, found \"4\""},
      {linear, {{"factor", nullptr}}, "factor: expected a number from 1 to 1000000, found null"},
      {linear, {{"factor", 1e300}}, "factor: expected a number from 1 to 1000000, found 1e+300"},
      {{{"type", "dynamic"}}, {{"factor", -1}}, "factor: expected a number from 1 to 1000000, found -1"},
      {llama3, {{"low_freq_factor", nullptr}}, "low_freq_factor: expected a number from 1e-06 to 1000000, found null"},
      {llama3, {{"low_freq_factor", 0}}, "low_freq_factor: expected a number from 1e-06 to 1000000, found 0"},
      {llama3, {{"high_freq_factor", -4}}, "high_freq_factor: expected a number from 1e-06 to 1000000, found -4"},
      {llama3, {{"high_freq_factor", 1}}, "high_freq_factor: 1 is not above low_freq_factor 1"},
      {llama3,
       {{"original_max_position_embeddings", 0}},
       "original_max_position_embeddings: expected a whole number from 1 to 16777216, found 0"},
      {yarn, {{"factor", 0.5}}, "factor: expected a number from 1 to 1000000, found 0.5"},
      {yarn, {{"beta_fast", -1}}, "beta_fast: expected a number from 1e-06 to 1000000, found -1"},
      {yarn, {{"beta_slow", "1"}}, "beta_slow: expected a number from 1e-06 to 1000000, found \"1\""},
      {yarn, {{"mscale", -1}}, "mscale: expected a number from 0 to 1000, found -1"},
      {yarn, {{"mscale_all_dim", true}}, "mscale_all_dim: expected a number from 0 to 1000, found true"},
      {yarn, {{"attention_factor", 0}}, "attention_factor: expected a number from 1e-06 to 1000, found 0"},
      {yarn, {{"truncate", 1}}, "truncate: expected true or false, found 1"},
      {yarn, {{"truncate", nullptr}}, "truncate: expected true or false, found null"},
      {yarn,
       {{"original_max_position_embeddings", 1.5}},
       "original_max_position_embeddings: expected a whole number from 1 to 16777216, found 1.5"},
      {yarn, {{"rope_theta", 1}}, "rope_type: \"yarn\" needs a rope_theta above 1"},
      {yarn, {{"rope_theta", 0}}, "rope_theta: expected a number from 1 to 1000000000000, found 0"},
      {yarn, {{"rope_type", 7}}, "rope_type: expected a string, found 7"},
  };
  for (const auto& c : cases) {
    json rope = c.base;
    rope.update(c.changes);
    EXPECT_EQ(rope_error_of({{"rope_scaling", rope}}), std::string("config.json: rope_scaling: ") + c.message);
  }
  EXPECT_EQ(rope_error_of({{"rope_theta", -1}}),
            "config.json: rope_theta: expected a number from 1 to 1000000000000, found -1");
  EXPECT_EQ(rope_error_of({{"rope_scaling", 2}}), "config.json: rope_scaling: expected an object, found 2");
  EXPECT_EQ(rope_error_of({{"rope_parameters", {1}}}),
            "config.json: rope_parameters: expected an object, found an array");
}

// Whatever parse_rope_config lets through.
TEST(RopeFrequencies, AreNumbersAtEveryLimit) {
  for (const double theta : {1.0, 1.0000000000000002, 10000.0, 1e12})
    for (const double factor : {1.0, 3.0, 1e6})
      for (const std::int64_t original : {1, 4096, 1 << 24}) {
        const json shared = {{"rope_theta", theta}, {"factor", factor}, {"original_max_position_embeddings", original}};
        for (const json& own : {
                 json{{"rope_type", "linear"}},
                 json{{"rope_type", "llama3"}, {"low_freq_factor", 1e-6}, {"high_freq_factor", 1e6}},
                 json{{"rope_type", "llama3"}, {"low_freq_factor", 1}, {"high_freq_factor", 1.0000000000000002}},
                 json{{"rope_type", "yarn"}},
                 json{{"rope_type", "yarn"}, {"beta_fast", 1e-6}, {"beta_slow", 1e6}, {"truncate", false}},
                 json{{"rope_type", "yarn"}, {"beta_fast", 1e6}, {"beta_slow", 1e-6}, {"mscale", 1000}},
                 json{{"rope_type", "yarn"}, {"beta_fast", 1}, {"beta_slow", 1}, {"truncate", false}},
             }) {
          if (theta == 1 && own["rope_type"] == "yarn") continue;  // refused
          json scaling = shared;
          scaling.update(own);
          for (const int head_dim : {2, 128, 1024}) {
            const RopeFrequencies result = rope_frequencies(parse_rope({{"rope_scaling", scaling}}), head_dim);
            EXPECT_EQ(std::ssize(result.inv_freq), head_dim / 2);
            for (const float frequency : result.inv_freq)
              ASSERT_TRUE(std::isfinite(frequency)) << scaling << " head_dim " << head_dim;
            EXPECT_TRUE(std::isfinite(result.scale) && result.scale > 0);
          }
        }
      }
}

TEST(RopeConfig, NamesWhatIsNotSupported) {
  const std::string known = "is not supported yet, only \"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\"";
  EXPECT_THAT(unsupported({{"rope_scaling", {{"rope_type", "longrope"}, {"long_factor", {1.0}}}}}),
              ElementsAre("config.json: rope_scaling: rope_type: \"longrope\" " + known));
  EXPECT_THAT(unsupported({{"rope_parameters", {{"type", "mrope"}}}}),
              ElementsAre("config.json: rope_parameters: type: \"mrope\" " + known));
  EXPECT_THAT(unsupported({{"partial_rotary_factor", 0.5}}),
              ElementsAre("config.json: partial_rotary_factor: 0.5 is not supported yet, only 1"));
  EXPECT_THAT(unsupported({{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}}),
              ElementsAre("config.json: rope_parameters: partial_rotary_factor: 0.5 is not supported yet, only 1"));
  EXPECT_THAT(unsupported({{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}),
              ElementsAre("config.json: rope_parameters: full_attention: {\"rope_type\":\"default\"} is not supported "
                          "yet, only one set of parameters for all layers"));
  EXPECT_THROW(unsupported({{"rope_scaling", {{"factor", 2}}}}), InputError);
  for (const char* type : {"default", "linear", "dynamic", "llama3", "yarn"})
    EXPECT_THAT(unsupported({{"rope_scaling", {{"rope_type", type}, {"factor", 2}, {"partial_rotary_factor", 1.0}}}}),
                IsEmpty());
}

}  // namespace
}  // namespace heddle
