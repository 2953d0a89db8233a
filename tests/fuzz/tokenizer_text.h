// Properties of every tokenizer that loads, for every text.
#pragma once

#include <string_view>

#include "text/tokenizer/tokenizer.h"

namespace heddle::fuzz {

// Encodes `text` and decodes the ids. Checks that only InputError is thrown, ids are in the vocabulary, the same text
// gives the same ids, and a StreamDecoder gives the same UTF-8 as decode(). Returns whether it was encoded.
bool check_text(const Tokenizer& tokenizer, std::string_view text);

// The same for decoding only. Throws InputError for ids outside the vocabulary.
void check_decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

}  // namespace heddle::fuzz
