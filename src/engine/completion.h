// The growing answer to one request: text without its stop strings, tokens, log-probabilities.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/text_stream.h"

namespace heddle {

class Completion {
 public:
  struct Logprob {
    TokenLogprob token;
    std::vector<TokenLogprob> top;
  };

  // Throws InputError when a stop string is empty.
  Completion(const Tokenizer& tokenizer, std::vector<std::string> stop);

  // Takes the next sampled token and returns the text that became final. Do not call it once finished(): after an
  // output with `finish`, or when a stop string has appeared. End the engine's request then.
  std::string push(const TokenOutput& output);

  // Ends the answer here, and returns the text that was held back.
  std::string cut();

  bool finished() const { return finish_.has_value(); }
  std::optional<FinishReason> finish() const { return finish_; }
  const std::string& text() const { return text_; }
  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::span<const Logprob> logprobs() const { return logprobs_; }  // one per token, or none

 private:
  TextStream stream_;
  std::string text_;
  std::vector<std::int32_t> tokens_;
  std::vector<Logprob> logprobs_;
  std::optional<FinishReason> finish_;
};

}  // namespace heddle
