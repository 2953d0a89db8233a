// tokenizer.json's "decoder": what text tokens give.
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
  // No decoder: tokens as they are, with spaces between.
  Decoder();

  // Throws InputError that names an element which is not supported. A Sequence is flattened; at most 64 stages.
  explicit Decoder(const JsonField& field);

  const std::vector<DecoderStage>& stages() const { return stages_; }

 private:
  void add(const JsonField& field);

  std::vector<DecoderStage> stages_;  // as they are before the first token
};

// One walk of tokens through a decoder's stages. A value: copies go their own ways.
class DecoderRun {
 public:
  explicit DecoderRun(const Decoder& decoder) : stages_(decoder.stages()) {}

  // Appends to `text` what became certain with this token: valid UTF-8. Throws InputError as PatternScan does.
  void push(std::string_view token, std::string& text);

  // Appends the rest. No token may follow.
  void finish(std::string& text);

 private:
  friend class DecoderNext;
  std::vector<DecoderStage> stages_;
};

// What a stage talks to: the one behind it, and behind the last one the text.
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
