#include "cli/generate/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const GenerationSettings kSettings{.sampling = {.temperature = 0.5, .top_k = 7, .seed = 3},
                                   .max_tokens = 99,
                                   .num_samples = 2,
                                   .stop = {"END"},
                                   .stop_ids = {3},
                                   .num_top_logprobs = 4};

Prompt parse(std::string_view line) {
  return parse_prompt(line, "p.jsonl:3", kSettings);
}

TEST(ParsePrompt, TakesTheRunsSettingsWhereTheLineHasNone) {
  for (const char* line : {R"({"prompt": "x"})", R"({"prompt": "x", "seed": null, "stop": null, "id": null})"}) {
    const Prompt prompt = parse(line);
    EXPECT_EQ(prompt.error, "");
    EXPECT_EQ(prompt.where, "p.jsonl:3");
    EXPECT_EQ(prompt.text, "x");
    EXPECT_TRUE(prompt.id.is_null());
    EXPECT_FALSE(prompt.conversation);
    const GenerationSettings& settings = prompt.settings;
    EXPECT_EQ(settings.sampling.temperature, 0.5);
    EXPECT_EQ(settings.sampling.top_k, 7);
    EXPECT_EQ(settings.sampling.seed, 3u);
    EXPECT_FALSE(settings.own_seed);
    EXPECT_EQ(settings.max_tokens, 99);
    EXPECT_EQ(settings.num_samples, 2);
    EXPECT_THAT(settings.stop, ElementsAre("END"));
    EXPECT_THAT(settings.stop_ids, ElementsAre(3));
    EXPECT_FALSE(settings.ignore_eos);
    EXPECT_EQ(settings.num_top_logprobs, 4);
  }
}

TEST(ParsePrompt, HonoursEveryFieldOfALine) {
  const Prompt prompt = parse(R"({"id": "a", "prompt": "x", "max_tokens": 5, "n": 3, "seed": 18446744073709551615,
      "stop": ["1", "2"], "temperature": 1.5, "top_k": 2, "top_p": 0.25, "min_p": 0.125, "repetition_penalty": 1.25,
      "presence_penalty": -0.5, "frequency_penalty": 0.75, "logprobs": 0, "stop_ids": [7, 8], "ignore_eos": true,
      "logit_bias": {"9": -100, "10": 0.5}})");
  EXPECT_EQ(prompt.error, "");
  EXPECT_EQ(prompt.id, "a");
  const GenerationSettings& settings = prompt.settings;
  EXPECT_EQ(settings.max_tokens, 5);
  EXPECT_EQ(settings.num_samples, 3);
  EXPECT_THAT(settings.stop, ElementsAre("1", "2"));
  EXPECT_EQ(settings.num_top_logprobs, 0);
  EXPECT_TRUE(settings.own_seed);
  EXPECT_EQ(settings.sampling.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(settings.sampling.temperature, 1.5);
  EXPECT_EQ(settings.sampling.top_k, 2);
  EXPECT_EQ(settings.sampling.top_p, 0.25);
  EXPECT_EQ(settings.sampling.min_p, 0.125);
  EXPECT_EQ(settings.sampling.repetition_penalty, 1.25);
  EXPECT_EQ(settings.sampling.presence_penalty, -0.5);
  EXPECT_EQ(settings.sampling.frequency_penalty, 0.75);
  EXPECT_THAT(settings.stop_ids, ElementsAre(7, 8));
  EXPECT_TRUE(settings.ignore_eos);
  ASSERT_EQ(settings.logit_bias.size(), 2u);
  for (const LogitBias& bias : settings.logit_bias) EXPECT_EQ(bias.bias, bias.id == 9 ? -100 : 0.5) << bias.id;
}

TEST(ParsePrompt, AStopMayBeOneString) {
  EXPECT_THAT(parse(R"({"prompt": "x", "stop": "."})").settings.stop, ElementsAre("."));
}

TEST(ParsePrompt, MessagesComeWithWhatTheTemplateNeedsInTheOrderOfTheFile) {
  const Prompt prompt = parse(R"({"tools": [{"type": "function", "about": 1}], "documents": [{"text": "d"}],
      "messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"think": false}, "id": 12})");
  EXPECT_EQ(prompt.error, "");
  EXPECT_EQ(prompt.id, 12);
  ASSERT_TRUE(prompt.conversation);
  EXPECT_EQ(prompt.conversation->messages.dump(), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(prompt.conversation->tools.dump(), R"([{"type":"function","about":1}])") << "not sorted by key";
  EXPECT_EQ(prompt.conversation->documents.dump(), R"([{"text":"d"}])");
  EXPECT_EQ(prompt.conversation->extra.dump(), R"({"think":false})");
}

TEST(ParsePrompt, AMistakeIsNamedWithLineAndField) {
  struct Case {
    const char* line;
    const char* error;
  };
  for (const Case& c : {
           Case{R"({"prompt": 7})", "p.jsonl:3: prompt: expected a string, found 7"},
           Case{R"({"text": "x"})", R"(p.jsonl:3: unknown field "text": use "prompt")"},
           Case{R"({})", R"(p.jsonl:3: has neither "prompt" nor "messages")"},
           Case{R"({"prompt": "x", "messages": []})", R"(has both "prompt" and "messages")"},
           Case{R"({"messages": []})", "p.jsonl:3: messages: holds no messages"},
           Case{R"({"messages": "hi"})", "messages: expected an array"},
           Case{R"({"messages": ["hi"]})", "messages[0]: expected an object"},
           Case{R"({"messages": [{}], "tools": 3})", "tools: expected an array"},
           Case{R"({"messages": [{}], "chat_template_kwargs": []})", "chat_template_kwargs: expected an object"},
           Case{R"({"prompt": "x", "tools": []})", R"(has "tools" without "messages")"},
           Case{R"({"prompt": "x", "temprature": 1})",
                R"(p.jsonl:3: unknown field "temprature": did you mean "temperature"?)"},
           Case{R"({"prompt": "x", "frobnicate": 1})",
                R"(unknown field "frobnicate": the fields of a prompt are prompt,)"},
           Case{R"({"prompt": "x", "stop_token_ids": [1]})", R"(unknown field "stop_token_ids": use "stop_ids")"},
           Case{R"({"prompt": "x", "stop_ids": [-1]})", "stop_ids[0]: expected a whole number from 0"},
           Case{R"({"prompt": "x", "stop_ids": 1})", "stop_ids: expected an array"},
           Case{R"({"prompt": "x", "ignore_eos": 1})", "ignore_eos: expected true or false"},
           Case{R"({"prompt": "x", "logit_bias": [1]})", "logit_bias: expected an object"},
           Case{R"({"prompt": "x", "logit_bias": {"the": 1}})", R"(logit_bias: "the" is no token id)"},
           Case{R"({"prompt": "x", "logit_bias": {"-1": 1}})", R"(logit_bias: "-1" is no token id)"},
           Case{R"({"prompt": "x", "logit_bias": {"5": 1001}})", "logit_bias: 5: expected a number from -1000 to 1000"},
           Case{R"({"prompt": "x", "suffix": null})", R"(unknown field "suffix")"},
           Case{R"({"custom_id": "a", "prompt": "x"})", R"(unknown field "custom_id": use "id")"},
           Case{R"({"prompt": "x", "model": "m"})", "the model is that of --model"},
           Case{R"({"prompt": "x", "id": 1.5})", "id: expected a string or a whole number, found 1.5"},
           Case{R"({"prompt": "x", "max_tokens": 0})", "max_tokens: expected a whole number"},
           Case{R"({"prompt": "x", "n": 0})", "n: expected a whole number from 1 to 65536"},
           Case{R"({"prompt": "x", "n": 65537})", "n: expected"},
           Case{R"({"prompt": "x", "seed": -1})",
                "seed: expected a whole number from 0 to 18446744073709551615, found -1"},
           Case{R"({"prompt": "x", "seed": "1"})", "seed: expected a whole number"},
           Case{R"({"prompt": "x", "stop": [1]})", "stop[0]: expected a string"},
           Case{R"({"prompt": "x", "temperature": -1})", "p.jsonl:3: temperature is -1, it must be 0 (greedy) or more"},
           Case{R"({"prompt": "x", "temperature": "hot"})", "temperature: expected a number"},
           Case{R"({"prompt": "x", "top_p": 0})", "top_p is 0, it must be in (0, 1]"},
           Case{R"({"prompt": "x", "top_k": -1})", "top_k: expected a whole number"},
           Case{R"({"prompt": "x", "logprobs": true})", "logprobs: expected a whole number"},
           Case{R"([1])", "p.jsonl:3: expected an object"},
           Case{R"({"prompt": "x")", "p.jsonl:3: is not valid JSON"},
           Case{"{\"prompt\": \"\xff\"}", "p.jsonl:3: is not valid JSON"},
       })
    EXPECT_THAT(parse(c.line).error, HasSubstr(c.error)) << c.line;
}

TEST(ParsePrompt, AWrongLineKeepsItsId) {
  EXPECT_EQ(parse(R"({"id": "a", "prompt": 7})").id, "a");
}

}  // namespace
}  // namespace heddle
