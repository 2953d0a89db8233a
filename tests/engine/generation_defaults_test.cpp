#include "engine/generation_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace heddle {
namespace {

GenerationDefaults read(const char* text) {
  const auto json = parse_json(text, "generation_config.json");
  return read_generation_defaults(JsonField(json, "generation_config.json"));
}

TEST(GenerationDefaults, AreGreedyUnlessTheFileSamples) {
  const GenerationDefaults defaults = read(R"({"do_sample": false, "temperature": 0.6, "top_k": 7, "top_p": 0.9})");
  EXPECT_EQ(defaults.sampling.temperature, 0);
  EXPECT_EQ(defaults.sampling.top_k, 0);
  EXPECT_EQ(defaults.sampling.top_p, 1);
  EXPECT_EQ(read("{}").sampling.temperature, 0);
}

TEST(GenerationDefaults, FollowAFileThatSamples) {
  const GenerationDefaults defaults = read(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 7, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "eos_token_id": [5, 6]})");
  EXPECT_EQ(defaults.sampling.temperature, 0.6);
  EXPECT_EQ(defaults.sampling.top_k, 7);
  EXPECT_EQ(defaults.sampling.top_p, 0.9);
  EXPECT_EQ(defaults.sampling.min_p, 0.1);
  EXPECT_EQ(defaults.sampling.repetition_penalty, 1.1);
  EXPECT_THAT(defaults.eos_ids, testing::ElementsAre(5, 6));
  EXPECT_EQ(read(R"({"do_sample": true})").sampling.temperature, 1);
  EXPECT_THAT(read(R"({"eos_token_id": 2})").eos_ids, testing::ElementsAre(2));
}

TEST(GenerationDefaults, RefuseValuesOutOfRangeByField) {
  for (const char* text : {R"({"do_sample": 1})", R"({"do_sample": true, "top_p": 2})", R"({"eos_token_id": "x"})",
                           R"({"eos_token_id": [-1]})", R"({"do_sample": true, "temperature": -1})",
                           R"({"repetition_penalty": 0})", R"({"do_sample": true, "top_k": 1e30})"}) {
    try {
      read(text);
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("generation_config.json: "));
    }
  }
}

}  // namespace
}  // namespace heddle
