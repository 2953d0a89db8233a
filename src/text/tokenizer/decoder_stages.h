// The elements of tokenizer.json's "decoder". Tokens pass through these stages one after the other. A token arrives in
// one or more calls of text() and one of end(); finish() follows the last token. A stage passes everything final on to
// the next one (`Next`: text() and end()), so decoding a stream and decoding a list are the same.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/pattern.h"

namespace heddle {

class DecoderNext;

// No decoder: spaces between tokens.
struct JoinWithSpaces {
  bool is_first = true;
  bool at_start = true;  // of a token
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// A token that consists of GPT-2's alphabet gives the encoded bytes, any other token its UTF-8. The bytes of all tokens
// form one text, in which invalid UTF-8 becomes U+FFFD.
struct ByteLevelStage {
  std::string token;
  std::string bytes;  // may still become a character
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// The byte of a token <0xHH>.
std::optional<char> byte_of_token(std::string_view token);

// A run of tokens <0x00> to <0xFF> becomes the text of these bytes, or one U+FFFD per byte if they are not UTF-8.
struct ByteFallbackStage {
  std::string token;
  std::string bytes;  // of the run
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);

 private:
  void end_run(DecoderNext next);
};

// Within each token.
struct ReplaceStage {
  Pattern pattern;
  std::string content;
  std::string token;
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// Removes up to `start` and `stop` copies of one character from the two ends of each token.
struct StripStage {
  std::string content;  // one character
  std::size_t start;
  std::size_t stop;
  std::size_t num_cut = 0;
  bool at_start = true;
  std::size_t num_held = 0;  // at the end so far
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// Joins all tokens into one.
struct FuseStage {
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// The replacement becomes a space; in the first token it is removed unless the scheme is never.
struct MetaspaceStage {
  Metaspace metaspace;
  bool in_first = true;
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// BPEDecoder: the suffix that ends words becomes a space; in the last token it is removed.
struct WordSuffixStage {
  std::string suffix;  // not empty
  std::string token;
  bool has_token = false;  // a complete one, which may be the last
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);

 private:
  void release(std::string_view instead, DecoderNext next);
};

using DecoderStage = std::variant<JoinWithSpaces, ByteLevelStage, ByteFallbackStage, ReplaceStage, StripStage,
                                  FuseStage, MetaspaceStage, WordSuffixStage>;

}  // namespace heddle
