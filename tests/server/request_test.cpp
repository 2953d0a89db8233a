// Bodies of requests: what is read, and what is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/generation_request.h"

namespace heddle::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const RequestDefaults kDefaults{.vocab_size = 1000};

GenerationRequest completion(const std::string& body) {
  return parse_completion_request(body, kDefaults);
}

GenerationRequest chat(const std::string& body) {
  return parse_chat_request(body, kDefaults);
}

TEST(CompletionRequest, ReadsEveryParameter) {
  const GenerationRequest request = completion(R"({"model": "m", "prompt": ["a", [1, 2]], "max_tokens": 5, "n": 2,
      "best_of": 3, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "repetition_penalty": 1.1,
      "presence_penalty": 1, "frequency_penalty": -1, "seed": -1, "stop": ["x", "yz"], "stop_token_ids": [7],
      "min_tokens": 2, "ignore_eos": true, "logit_bias": {"5": -100}, "logprobs": 3, "prompt_logprobs": 1, "echo": true,
      "user": "u"})");
  EXPECT_EQ(request.model, "m");
  ASSERT_EQ(request.prompts.size(), 2U);
  EXPECT_EQ(std::get<std::string>(request.prompts[0]), "a");
  EXPECT_THAT(std::get<std::vector<std::int32_t>>(request.prompts[1]), ElementsAre(1, 2));
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(request.min_tokens, 2);
  EXPECT_EQ(request.num_answers, 2);
  EXPECT_EQ(request.num_samples, 3);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.frequency_penalty, -1);
  EXPECT_EQ(request.seed, static_cast<std::uint64_t>(-1));
  EXPECT_THAT(request.stop, ElementsAre("x", "yz"));
  EXPECT_THAT(request.stop_ids, ElementsAre(7));
  EXPECT_TRUE(request.ignore_eos);
  ASSERT_EQ(request.logit_bias.size(), 1U);
  EXPECT_EQ(request.logit_bias[0].id, 5);
  EXPECT_EQ(request.num_top_logprobs, 3);
  EXPECT_EQ(request.num_prompt_logprobs, 1);
  EXPECT_TRUE(request.echo);
}

TEST(BothRequests, TakeWhatAsksForNothingAndRefuseTheRestByName) {
  const std::string prompt = R"({"prompt": "a", )", messages = R"({"messages": [{"role": "user", "content": "a"}], )";
  for (const char* harmless :
       {R"("length_penalty": 1)", R"("length_penalty": 1.0)", R"("priority": 0)", R"("return_token_ids": false)",
        R"("return_tokens_as_token_ids": false)", R"("bad_words": [])", R"("allowed_token_ids": null)",
        R"("skip_special_tokens": true)", R"("spaces_between_special_tokens": true)", R"("add_special_tokens": true)",
        R"("guided_decoding_backend": "xgrammar")", R"("continue_final_message": false)", R"("cache_salt": "")",
        R"("truncate_prompt_tokens": null)", R"("include_reasoning": true)"}) {
    EXPECT_NO_THROW(completion(prompt + harmless + "}")) << harmless;
    EXPECT_NO_THROW(chat(messages + harmless + "}")) << harmless;
  }
  for (const std::string missing : {R"("length_penalty": 2)", R"("priority": 1)", R"("return_token_ids": true)",
                                    R"("bad_words": ["x"])", R"("allowed_token_ids": [1])", R"("cache_salt": "s")",
                                    R"("truncate_prompt_tokens": 5)", R"("continue_final_message": true)"})
    for (const std::string& start : {prompt, messages}) try {
        (start == prompt ? completion : chat)(start + missing + "}");
        ADD_FAILURE() << start << missing;
      } catch (const ApiError& error) {
        EXPECT_EQ(error.status, 501) << missing;
        EXPECT_EQ('"' + error.param + '"', missing.substr(0, missing.find(':')));
      }
}

TEST(CompletionRequest, TakesTokensOfOnePrompt) {
  EXPECT_THAT(std::get<std::vector<std::int32_t>>(completion(R"({"prompt": [3, 4]})").prompts[0]), ElementsAre(3, 4));
}

TEST(ChatRequest, JoinsPartsAndReadsStreamOptions) {
  const GenerationRequest request = chat(R"({"messages": [{"role": "developer", "content": "s"}, {"role": "user",
      "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": null, "include_obfuscation": false},
      "logprobs": true, "top_logprobs": 2, "max_completion_tokens": 9})");
  EXPECT_EQ(request.conversation.messages[0]["role"], "system");
  EXPECT_EQ(request.conversation.messages[1]["content"], "a\nb");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_EQ(request.num_top_logprobs, 2);
  EXPECT_EQ(request.max_tokens, 9);
}

TEST(ChatRequest, ArgumentsOfEarlierCallsBecomeObjects) {
  const GenerationRequest request = chat(R"({"messages": [{"role": "assistant", "content": null, "tool_calls":
      [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]})");
  EXPECT_EQ(request.conversation.messages[0]["tool_calls"][0]["function"]["arguments"]["x"], 1);
}

nlohmann::json tool(const std::string& name, const std::string& parameters) {
  return {{"type", "function"}, {"function", {{"name", name}, {"parameters", nlohmann::json::parse(parameters)}}}};
}

TEST(ChatRequest, AForcedCallIsAForm) {
  nlohmann::json body{{"messages", {{{"role", "user"}, {"content", "x"}}}},
                      {"tools",
                       {tool("f", R"({"properties": {"$ref": {"$ref": "#/$defs/n"}, "enum": {"const": {"$ref": "#/x"}}},
                                      "$defs": {"n": {"type": "integer"}}})"),
                        tool("g", "null")}},
                      {"tool_choice", "required"}};
  const GenerationRequest any = chat(body.dump());
  EXPECT_EQ(any.tool_choice, ToolChoice::forced);
  EXPECT_EQ(any.tool_format, ToolFormat::json);  // this model has no way of its own
  ASSERT_TRUE(any.grammar);
  EXPECT_EQ(any.grammar->frame.separator, "; ");
  const auto schema = nlohmann::json::parse(any.grammar->text);
  const auto& parameters = schema["anyOf"][0]["properties"]["parameters"];
  EXPECT_EQ(parameters["type"], "object");
  EXPECT_EQ(parameters["properties"]["$ref"]["$ref"], "#/anyOf/0/properties/parameters/$defs/n");
  EXPECT_EQ(parameters["properties"]["enum"]["const"]["$ref"], "#/x");  // a value, not a reference
  EXPECT_EQ(schema["anyOf"][1]["properties"]["parameters"]["properties"], nlohmann::json::object());

  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "g"}}}};
  RequestDefaults defaults = kDefaults;
  defaults.tools = ToolFormat::tagged;
  const GenerationRequest one = parse_chat_request(body.dump(), defaults);
  EXPECT_EQ(nlohmann::json::parse(one.grammar->text)["properties"]["name"]["const"], "g");
  EXPECT_EQ(one.grammar->frame.open, "<tool_call>\n");
  EXPECT_EQ(one.grammar->frame.most, 1);
  EXPECT_FALSE(one.parallel_tool_calls);
}

struct Refusal {
  const char* body;
  int status;
  const char* param;
};

class RefusedCompletion : public testing::TestWithParam<Refusal> {};
class RefusedChat : public testing::TestWithParam<Refusal> {};

void expect_refusal(const Refusal& expected, GenerationRequest (*parse)(const std::string&)) {
  try {
    parse(expected.body);
    FAIL() << "accepted: " << expected.body;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, expected.status) << error.what();
    EXPECT_EQ(error.param, expected.param) << error.what();
    const auto object = nlohmann::json::parse(error_json(error));
    EXPECT_EQ(object["error"]["message"], error.what());
  }
}

TEST_P(RefusedCompletion, WithTheFieldsName) {
  expect_refusal(GetParam(), completion);
}

TEST_P(RefusedChat, WithTheFieldsName) {
  expect_refusal(GetParam(), chat);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RefusedCompletion,
    testing::Values(Refusal{"", 400, ""}, Refusal{"[]", 400, ""}, Refusal{"{}", 400, "prompt"},
                    Refusal{R"({"prompt": "a", "prompt": "b"})", 400, ""}, Refusal{R"({"prompt": []})", 400, "prompt"},
                    Refusal{R"({"prompt": [[1], []]})", 400, "prompt"}, Refusal{R"({"prompt": [1000]})", 400, "prompt"},
                    Refusal{R"({"prompt": {"a": 1}})", 400, "prompt"},
                    Refusal{R"({"prompt": "a", "temperature": -1})", 400, "temperature"},
                    Refusal{R"({"prompt": "a", "temperature": "hot"})", 400, "temperature"},
                    Refusal{R"({"prompt": "a", "n": 129})", 400, "n"}, Refusal{R"({"prompt": "a", "n": 0})", 400, "n"},
                    Refusal{R"({"prompt": "a", "n": 2, "best_of": 1})", 400, "best_of"},
                    Refusal{R"({"prompt": "a", "best_of": 2, "stream": true})", 400, "best_of"},
                    Refusal{R"({"prompt": "a", "max_tokens": 0})", 400, "max_tokens"},
                    Refusal{R"({"prompt": "a", "max_tokens": 2, "min_tokens": 3})", 400, "min_tokens"},
                    Refusal{R"({"prompt": "a", "logprobs": 21})", 400, "logprobs"},
                    Refusal{R"({"prompt": "a", "stop": ""})", 400, "stop"},
                    Refusal{R"({"prompt": "a", "logit_bias": {"x": 1}})", 400, "logit_bias"},
                    Refusal{R"({"prompt": "a", "logit_bias": {"1": 101}})", 400, "logit_bias"},
                    Refusal{R"({"prompt": "a", "stream_options": {"include_usage": true}})", 400, "stream_options"},
                    Refusal{R"({"prompt": "a", "stream": true, "stream_options": {"include_usag": true}})", 400,
                            "stream_options"},
                    Refusal{R"({"prompt": "a", "tempreature": 1})", 400, "tempreature"},
                    Refusal{R"({"prompt": "a", "suffix": "z"})", 501, "suffix"},
                    Refusal{R"({"prompt": "a", "use_beam_search": true})", 501, "use_beam_search"}));

INSTANTIATE_TEST_SUITE_P(
    Cases, RefusedChat,
    testing::Values(
        Refusal{R"({"messages": []})", 400, "messages"}, Refusal{R"({"messages": "hi"})", 400, "messages"},
        Refusal{R"({"messages": [{"role": "king", "content": "x"}]})", 400, "messages"},
        Refusal{R"({"messages": [{"role": "user"}]})", 400, "messages"},
        Refusal{R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", 501, "messages"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2})", 400, "top_logprobs"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "tools": [1]})", 400, "tools"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "web_search"}]})", 501, "tools"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function",
                                "function": {"name": "a b"}}]})",
                400, "tools"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function",
                                "function": {"name": "f", "parameters": {"type": "string"}}}]})",
                400, "tools"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"})", 400, "tool_choice"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "often"})", 400, "tool_choice"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function",
                                "function": {"name": "f"}}], "tool_choice": {"type": "function",
                                "function": {"name": "g"}}})",
                400, "tool_choice"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function",
                                "function": {"name": "f"}}], "tool_choice": "required",
                                "response_format": {"type": "json_object"}})",
                400, "tool_choice"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}],
                                "tool_choice": {"type": "allowed_tools"}})",
                501, "tool_choice"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "web_search_options": {}})", 501,
                "web_search_options"},
        Refusal{R"({"messages": [{"role": "user", "content": "x"}], "functions": [{"name": "f"}]})", 501,
                "functions"}));

TEST(Request, ManyStopStringsAreRefusedByTheLimitsName) {
  nlohmann::json body{{"prompt", "a"}, {"stop", nlohmann::json::array()}};
  for (int i = 0; i < 17; ++i) body["stop"].push_back(std::to_string(i));
  try {
    completion(body.dump());
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_THAT(error.what(), HasSubstr("max_stop_strings"));
  }
}

TEST(Request, DeepNestingIsRefused) {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  EXPECT_THROW(completion("{\"prompt\": " + deep + "}"), ApiError);
  EXPECT_THROW(chat("{\"messages\": " + deep + "}"), ApiError);
}

}  // namespace
}  // namespace heddle::server
