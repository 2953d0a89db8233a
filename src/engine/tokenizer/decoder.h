// tokenizer.json's "decoder": what bytes a token gives.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace heddle {

class Decoder {
 public:
  // No decoder: tokens as they are, with spaces between.
  Decoder() = default;

  // Throws InputError that names an element which is not supported. A Sequence is flattened.
  explicit Decoder(const JsonField& field);

  // ByteLevel: a token made of GPT-2's alphabet alone gives the bytes that it stands for, any other its UTF-8.
  std::string bytes_of(std::string_view token) const;

  // Stands between the bytes of two tokens.
  std::string_view separator() const { return separator_; }

 private:
  void add(const JsonField& field);

  bool is_byte_level_ = false;
  std::string_view separator_ = " ";
};

}  // namespace heddle
