// Log-probabilities as `generate --json` and `score --json` print them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/sampler.h"
#include "text/tokenizer/tokenizer.h"

namespace heddle {

// {"id","token","logprob"}; without "token" if there is no tokenizer. A token that the tokenizer does not know has an
// empty text.
nlohmann::ordered_json logprob_json(const TokenLogprob& token, const Tokenizer* tokenizer);

}  // namespace heddle
