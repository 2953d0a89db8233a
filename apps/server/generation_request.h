// The bodies of /v1/completions and /v1/chat/completions, parsed and checked: bytes in, a plain struct out. No sockets and
// no engine, so that tests and the fuzzer reach all of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/token_history.h"
#include "server/request_limits.h"
#include "server/tool_format.h"
#include "step/step_plan.h"
#include "text/chat_template/model_chat_template.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

namespace heddle::server {

using PromptText = std::variant<std::string, std::vector<std::int32_t>>;  // a text, or its tokens

enum class ToolChoice : std::uint8_t {
  none,
  automatic,
  forced  // required, or a function by name: the grammar allows nothing but calls
};

struct GenerationRequest {
  bool chat = false;
  SpecialTokens special_tokens = SpecialTokens::add;  // of a text to encode: those that the tokenizer puts around it
  std::string model;                                  // as the client named it; empty: not given
  std::vector<PromptText> prompts;                    // of a completion, at least one
  TemplateInput conversation;                         // of a chat
  ToolChoice tool_choice = ToolChoice::automatic;
  ToolFormat tool_format = ToolFormat::none;  // of the calls to look for in the answer
  bool parallel_tool_calls = true;

  SamplingParams sampling;  // without the seed
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> max_tokens;  // nothing: 16 for a completion, what the context holds for a chat
  std::int64_t min_tokens = 0;
  int num_answers = 1;  // n, for each prompt
  int num_samples = 1;  // best_of, at least n
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_ids;  // beside the model's own end tokens
  bool ignore_eos = false;
  std::vector<LogitBias> logit_bias;
  std::optional<grammar::GrammarSource> grammar;  // the form that answers must have
  std::string grammar_field;                      // the field that has asked for it
  std::optional<int> num_top_logprobs;            // set: log-probabilities, with so many alternatives
  std::optional<int> num_prompt_logprobs;         // likewise of the prompt's tokens
  bool echo = false;                              // a completion's text begins with its prompt
  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // in every chunk
};

struct RequestDefaults {
  SamplingParams sampling;              // of the model's generation_config.json
  std::int64_t vocab_size = 0;          // of the model: token ids are below it
  ToolFormat tools = ToolFormat::none;  // that the model has learnt
  RequestLimits limits;
};

// Throws ApiError 400 with the field's name for anything that is not such a request: wrong JSON, wrong types, values out
// of range or beyond a limit, unknown fields. ApiError 501, likewise, for what OpenAI's API has and Heddle has not.
GenerationRequest parse_completion_request(std::string_view body, const RequestDefaults& defaults);
GenerationRequest parse_chat_request(std::string_view body, const RequestDefaults& defaults);

}  // namespace heddle::server
