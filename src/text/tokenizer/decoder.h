// tokenizer.json's "decoder": turns tokens into text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/decoder_stages.h"

namespace heddle {

class Decoder {
 public:
  // No decoder: tokens unchanged, with spaces between them.
  Decoder();

  // Throws InputError that names an unsupported element. A Sequence is flattened; at most 64 stages.
  explicit Decoder(const JsonField& field);

  const std::vector<DecoderStage>& stages() const { return stages_; }

  // The bytes that a token adds to a text behind its first token; they need not be UTF-8 by themselves. Throws InputError
  // when a stage makes them depend on other tokens.
  std::string bytes_of(std::string_view token) const;

 private:
  void add(const JsonField& field);

  std::vector<DecoderStage> stages_;  // in their initial state
};

// One pass of tokens through a decoder's stages. A value: copies are independent.
class DecoderRun {
 public:
  explicit DecoderRun(const Decoder& decoder) : stages_(decoder.stages()) {}

  // Appends the text that became final with this token to `text`: valid UTF-8. Throws InputError as PatternScan does.
  void push(std::string_view token, std::string& text);

  // Appends the rest. No token may follow.
  void finish(std::string& text);

 private:
  friend class DecoderNext;
  std::vector<DecoderStage> stages_;
};

// What a stage sends its output to: the next stage, or after the last one the text.
class DecoderNext {
 public:
  DecoderNext(DecoderRun& run, std::size_t stage, std::string& out) : run_(&run), stage_(stage), out_(&out) {}
  void text(std::string_view text);
  void end();

 private:
  DecoderRun* run_;
  std::size_t stage_;
  std::string* out_;
};

}  // namespace heddle
