// A checked request and its tokens as requests to the engine, one for each answer.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/generation_defaults.h"
#include "engine/grammar_constraint.h"
#include "server/engine_loop.h"
#include "server/generation_request.h"
#include "server/prompt_encoder.h"

namespace heddle::server {

struct EngineContext {
  const Engine& engine;
  const GenerationDefaults& defaults;
  GrammarConstraints* constraints = nullptr;  // null: the tokenizer's tokens have no bytes of their own
  bool reasons = false;                       // the model writes <think>
};

// Answer i is of prompt i / num_samples. Tickets are missing, and same_prompt_as is an index of the list for now. Thread-safe.
// Throws ApiError 400 for a form that cannot be compiled, with the field that asks for it; 501 without constraints.
std::vector<LoopRequest> engine_requests(const GenerationRequest& request, const EncodedPrompts& prompts,
                                         std::uint64_t owner, const EngineContext& context);

}  // namespace heddle::server
