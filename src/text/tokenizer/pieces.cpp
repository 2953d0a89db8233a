#include "text/tokenizer/pieces.h"

#include "base/error.h"
#include "text/tokenizer/byte_level.h"

namespace heddle {

void check_text_size(std::size_t size_bytes) {
  if (size_bytes > kMaxTextBytes)
    throw_error<InputError>(
        "the text to encode grows to {} bytes under the tokenizer's normalizer, more than {} (max_normalized_bytes)",
        size_bytes, kMaxTextBytes);
}

void spell_out(Pieces& pieces) {
  if (pieces.alphabet == Alphabet::characters) return;
  pieces = rewrite_pieces(pieces, [](std::string& text, std::string_view piece) { text += to_byte_level(piece); });
}

}  // namespace heddle
