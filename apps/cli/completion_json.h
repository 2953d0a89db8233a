// A finished answer as `generate --json` prints it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/completion.h"

namespace heddle {

struct PromptOfCompletion {
  std::string text;
  std::int64_t num_tokens = 0;  // as encoded
  bool echoed = false;          // the answer's text begins with it
};

// {"id","token","logprob"}; without "token" if there is no tokenizer. A token that the tokenizer does not know has an
// empty text.
nlohmann::ordered_json logprob_json(const TokenLogprob& token, const Tokenizer* tokenizer);

// {"prompt","prompt_tokens","text","tokens","finish_reason","logprobs"} in one line; without "logprobs" if the engine
// returned none. Throws InvalidArgument unless the completion is finished.
std::string completion_json(const PromptOfCompletion& prompt, const Completion& completion, const Tokenizer& tokenizer);

}  // namespace heddle
