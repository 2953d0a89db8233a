#include "cli/completion_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace heddle {
using nlohmann::ordered_json;

ordered_json logprob_json(const TokenLogprob& token, const Tokenizer* tokenizer) {
  ordered_json object{{"id", token.id}};
  if (tokenizer != nullptr)
    object["token"] = token.id < tokenizer->vocab_size() ? tokenizer->token_text(token.id) : std::string();
  object["logprob"] = token.logprob;
  return object;
}

std::string completion_json(const PromptOfCompletion& prompt, const Completion& completion,
                            const Tokenizer& tokenizer) {
  require(completion.finished(), "completion: it is not finished");
  ordered_json object{{"prompt", prompt.text},
                      {"prompt_tokens", prompt.num_tokens},
                      {"text", prompt.echoed ? prompt.text + completion.text() : completion.text()},
                      {"tokens", completion.tokens()},
                      {"finish_reason", completion.finish() == FinishReason::stop ? "stop" : "length"}};
  if (!completion.logprobs().empty()) {
    ordered_json list = ordered_json::array();
    for (const Completion::Logprob& logprob : completion.logprobs()) {
      ordered_json entry = logprob_json(logprob.token, &tokenizer);
      entry["top"] = ordered_json::array();
      for (const TokenLogprob& top : logprob.top) entry["top"].push_back(logprob_json(top, &tokenizer));
      list.push_back(std::move(entry));
    }
    object["logprobs"] = std::move(list);
  }
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace heddle
