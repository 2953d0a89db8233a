// Text between user and model: split into pieces, some of which are already tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// Bytes [begin, end) of a text.
struct Span {
  std::uint32_t begin;
  std::uint32_t end;
};

struct Piece {
  static constexpr std::int32_t kNoToken = -1;
  Span span;                      // not empty; meaningless for a token
  std::int32_t token = kNoToken;  // an added token's id: no later stage changes this piece
};

// The meaning of a piece's bytes: characters in UTF-8, or each byte one character of GPT-2's alphabet (byte_level.h),
// which is then not spelled out.
enum class Alphabet { characters, bytes };

struct Pieces {
  std::string text;  // at most kMaxTextBytes
  std::vector<Piece> list;
  Alphabet alphabet = Alphabet::characters;
  // Whether the first piece of the list begins where the user's text began. Once that piece is removed, no piece does.
  bool first_is_at_start = true;

  std::string_view text_of(Span span) const { return std::string_view(text).substr(span.begin, span.end - span.begin); }
};

// The longest text between two stages; a normalizer that produces more is an error.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

// Throws InputError when a text of `size_bytes` is too long.
void check_text_size(std::size_t size_bytes);

// Copies the pieces into a new text one by one. `rewrite(std::string& text, std::string_view piece)` appends the new
// form of each piece that is not a token. Drops pieces that become empty.
template <class Rewrite>
Pieces rewrite_pieces(const Pieces& pieces, Rewrite rewrite) {
  Pieces result;
  result.first_is_at_start = pieces.first_is_at_start;
  result.text.reserve(pieces.text.size());
  result.list.reserve(pieces.list.size());
  for (const Piece& piece : pieces.list) {
    const auto begin = static_cast<std::uint32_t>(result.text.size());
    if (piece.token == Piece::kNoToken) rewrite(result.text, pieces.text_of(piece.span));
    check_text_size(result.text.size());
    const Span span{begin, static_cast<std::uint32_t>(result.text.size())};
    if (span.begin != span.end || piece.token != Piece::kNoToken) {
      result.list.push_back({span, piece.token});
    } else if (&piece == &pieces.list.front()) {
      result.first_is_at_start = false;
    }
  }
  return result;
}

// With Alphabet::bytes: writes the bytes in GPT-2's alphabet, so that a stage that reads characters can follow.
void spell_out(Pieces& pieces);

}  // namespace heddle
