// An engine whose model computes nothing: every layer around it works, and answers come at once.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/engine.h"

namespace heddle::fuzz {

// With a vocabulary of `vocab_size` tokens, of which `end` ends a text and is a little likelier than others. The logits
// depend on the last token alone. Sequences of at most 512 tokens, 8 at a time.
std::unique_ptr<Engine> instant_engine(std::int64_t vocab_size, std::int32_t end);

}  // namespace heddle::fuzz
