// OpenAI's objects: what answers are sent as.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/completion.h"
#include "text/tokenizer/tokenizer.h"

namespace heddle::server {

using Json = nlohmann::ordered_json;

// A token of the prompt or of the answer. The prompt's first has no log-probability.
struct ScoredToken {
  std::int32_t id = 0;
  std::optional<double> logprob;
  std::vector<TokenLogprob> top;
  std::int64_t rank = 0;  // with logprob (TokenOutput)
};

// Text in UTF-8; ill-formed bytes, of which a model's text may have some, become U+FFFD.
std::string json_text(const Json& value);

// A text as a JSON string.
std::string json_string(const std::string& text);

// "data: ...\n\n"
std::string sse_event(const std::string& data);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of a completion; `offset`: characters of the text before these
// tokens, which advances. Tokens that are no whole characters are shown as "bytes:\xe2\x80".
Json completion_logprobs(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer, std::size_t& offset);

// A token's text as completions show it.
std::string completion_token(std::int32_t id, const Tokenizer& tokenizer);

// {"content": [{"token", "logprob", "bytes", "top_logprobs"}]} of a chat.
Json chat_logprobs(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer);

// [null, {"ID": {"logprob", "rank", "decoded_token"}}, ...], as vLLM has it.
Json prompt_logprobs(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer);

Json usage_json(std::int64_t num_prompt_tokens, std::int64_t num_answer_tokens);

// A call of a tool; `id` is the call's own.
Json tool_call_json(const std::string& id, const std::string& name, const std::string& arguments);

}  // namespace heddle::server
