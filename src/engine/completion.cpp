#include "engine/completion.h"

#include <utility>

#include "base/error.h"

namespace heddle {

Completion::Completion(const Tokenizer& tokenizer, std::vector<std::string> stop)
    : stream_(tokenizer, std::move(stop)) {}

std::string Completion::push(const TokenOutput& output) {
  require(!finished(), "completion: a token after its end");
  require(!output.prompt_index && output.error.empty(), "completion: no token that was sampled");
  tokens_.push_back(output.token);
  if (output.logprob) logprobs_.push_back({{output.token, *output.logprob}, output.top});
  std::string text = stream_.push(output.token);
  if (output.finish && !stream_.stopped()) text += stream_.finish();
  finish_ = stream_.stopped() ? FinishReason::stop : output.finish;
  text_ += text;
  return text;
}

std::string Completion::cut() {
  if (finished()) return {};
  std::string text = stream_.finish();
  finish_ = FinishReason::length;
  text_ += text;
  return text;
}

}  // namespace heddle
