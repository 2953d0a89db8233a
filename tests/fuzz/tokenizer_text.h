// What must hold of every tokenizer that loads, for every text.
#pragma once

#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace heddle::fuzz {

// Encodes `text` and decodes the ids: nothing but InputError may come of it, ids lie in the vocabulary, the same text
// gives the same ids, and a StreamDecoder says what decode() says, which is UTF-8. Whether it was encoded.
bool check_text(const Tokenizer& tokenizer, std::string_view text);

// The same of decoding alone. Throws InputError for ids outside of the vocabulary.
void check_decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

}  // namespace heddle::fuzz
