// From sampled tokens to text that may be shown: special tokens and stop strings are left out, and what may still turn
// into one, or is half a character, is held back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace heddle {

class TextStream {
 public:
  // `stop`: the text ends before the first of these that appears. Throws InputError when one is empty or longer
  // than 1 KiB, or when there are more than 1024.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop);

  // The text that has become certain with this token. Not to be called once stopped().
  std::string push(std::int32_t token);

  // The rest, when no token will follow. Empty once stopped().
  std::string finish();

  bool stopped() const { return stopped_; }

 private:
  std::string release(std::string more);

  StreamDecoder decoder_;
  std::int32_t vocab_size_;
  std::vector<std::string> stop_;
  std::string held_;  // may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace heddle
