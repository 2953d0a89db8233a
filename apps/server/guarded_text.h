// Texts of users never become special tokens: "<|end|>" in a message is seven ordinary characters to the model.
// What users wrote is marked before a chat template mixes it with special tokens of its own, and the marks tell the
// tokenizer afterwards which strings to encode as text.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace heddle::server {

class TextGuard {
 public:
  explicit TextGuard(const Tokenizer& tokenizer);

  // Puts a mark behind the first character of each special token in a text, or in every string of a JSON value, names of
  // members excepted. The mark is U+FDD0, a noncharacter; one that the user wrote becomes U+FFFD.
  std::string marked(std::string_view text) const;
  void mark(nlohmann::ordered_json& value) const;

  // The tokens of a text without its marks; special tokens match where there is no mark.
  std::vector<std::int32_t> encode(std::string_view marked_text, SpecialTokens special_tokens) const;

 private:
  Tokenizer tokenizer_;
  std::vector<std::string> specials_;  // texts of the special tokens
};

}  // namespace heddle::server
