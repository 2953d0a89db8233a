// The elements of tokenizer.json's "decoder". Each is a stage that tokens run through one after the other: what a token
// gives comes in one or more calls of text() and one of end(); finish() follows the last token. A stage says all that
// has become certain to the next one (`Next`: text() and end()), so that decoding a stream and decoding a list is the
// same.
#pragma once

#include <cstddef>
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

// A token made of GPT-2's alphabet alone gives the bytes that it stands for, any other its UTF-8; all together are one
// text, in which what is not UTF-8 becomes U+FFFD.
struct ByteLevelStage {
  std::string token;
  std::string bytes;  // may yet become a character
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// Tokens <0x00> to <0xFF> in a row become the text that these bytes are, or one U+FFFD for each when they are not
// UTF-8.
struct ByteFallbackStage {
  std::string token;
  std::string bytes;  // of the run
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);

 private:
  void end_run(DecoderNext next);
};

// In each token by itself.
struct ReplaceStage {
  Pattern pattern;
  std::string content;
  std::string token;
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// Takes up to `start` and `stop` of one character from the ends of each token.
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

// Makes one token of all.
struct FuseStage {
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// The replacement becomes a space, and in the first token nothing unless the scheme is never.
struct MetaspaceStage {
  Metaspace metaspace;
  bool in_first = true;
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);
};

// BPEDecoder: the suffix that ends words becomes a space, and in the last token nothing.
struct WordSuffixStage {
  std::string suffix;  // not empty
  std::string token;
  bool has_token = false;  // a whole one, which may be the last
  void text(std::string_view text, DecoderNext next);
  void end(DecoderNext next);
  void finish(DecoderNext next);

 private:
  void release(std::string_view instead, DecoderNext next);
};

using DecoderStage = std::variant<JoinWithSpaces, ByteLevelStage, ByteFallbackStage, ReplaceStage, StripStage,
                                  FuseStage, MetaspaceStage, WordSuffixStage>;

}  // namespace heddle
