#include "cli/completion.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

// {"id","token","logprob"}; a token that only the model knows, not the tokenizer, has an empty text.
ordered_json json_of(const TokenLogprob& token, const Tokenizer& tokenizer) {
  return {{"id", token.id},
          {"token", token.id < tokenizer.vocab_size() ? tokenizer.token_text(token.id) : std::string()},
          {"logprob", token.logprob}};
}

}  // namespace

Completion::Completion(const Tokenizer& tokenizer, std::string prompt, std::int64_t num_prompt_tokens,
                       std::vector<std::string> stop)
    : tokenizer_(tokenizer),
      stream_(tokenizer, std::move(stop)),
      prompt_(std::move(prompt)),
      num_prompt_tokens_(num_prompt_tokens) {}

std::string Completion::push(const TokenOutput& output) {
  require(!finished(), "completion: a token after its end");
  tokens_.push_back(output.token);
  if (output.logprob) logprobs_.push_back({{output.token, *output.logprob}, output.top});
  std::string text = stream_.push(output.token);
  if (output.finish && !stream_.stopped()) text += stream_.finish();
  finish_ = stream_.stopped() ? FinishReason::stop : output.finish;
  text_ += text;
  return text;
}

std::string Completion::json() const {
  require(finished(), "completion: it is not finished");
  ordered_json object{{"prompt", prompt_},
                      {"prompt_tokens", num_prompt_tokens_},
                      {"text", text_},
                      {"tokens", tokens_},
                      {"finish_reason", *finish_ == FinishReason::stop ? "stop" : "length"}};
  if (!logprobs_.empty()) {
    ordered_json list = ordered_json::array();
    for (const Logprob& logprob : logprobs_) {
      ordered_json entry = json_of(logprob.token, tokenizer_);
      entry["top"] = ordered_json::array();
      for (const TokenLogprob& top : logprob.top) entry["top"].push_back(json_of(top, tokenizer_));
      list.push_back(std::move(entry));
    }
    object["logprobs"] = std::move(list);
  }
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace heddle
