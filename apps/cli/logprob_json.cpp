#include "cli/logprob_json.h"

#include <nlohmann/json.hpp>
#include <string>

namespace heddle {

nlohmann::ordered_json logprob_json(const TokenLogprob& token, const Tokenizer* tokenizer) {
  nlohmann::ordered_json object{{"id", token.id}};
  if (tokenizer != nullptr)
    object["token"] = token.id < tokenizer->vocab_size() ? tokenizer->token_text(token.id) : std::string();
  object["logprob"] = token.logprob;
  return object;
}

}  // namespace heddle
