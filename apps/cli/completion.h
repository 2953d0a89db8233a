// One prompt's answer as it grows, and as JSON when it is done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/text_stream.h"

namespace heddle {

class Completion {
 public:
  // `num_prompt_tokens`: as the prompt was encoded.
  Completion(const Tokenizer& tokenizer, std::string prompt, std::int64_t num_prompt_tokens,
             std::vector<std::string> stop);

  const std::string& prompt() const { return prompt_; }
  bool finished() const { return finish_.has_value(); }

  // Takes the next token and returns the text that became certain. Not to be called once finished(), which it is after
  // an output with `finish`, or when a stop string has appeared: the engine's request is then to be cancelled.
  std::string push(const TokenOutput& output);

  // {"prompt","prompt_tokens","text","tokens","finish_reason","logprobs"} in one line; without "logprobs" where the
  // engine gave none. Throws InvalidArgument unless finished().
  std::string json() const;

 private:
  struct Logprob {
    TokenLogprob token;
    std::vector<TokenLogprob> top;
  };

  Tokenizer tokenizer_;
  TextStream stream_;
  std::string prompt_;
  std::int64_t num_prompt_tokens_;
  std::string text_;
  std::vector<std::int32_t> tokens_;
  std::vector<Logprob> logprobs_;
  std::optional<FinishReason> finish_;
};

}  // namespace heddle
