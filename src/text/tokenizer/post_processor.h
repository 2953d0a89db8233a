// tokenizer.json's "post_processor": the tokens around a text.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace heddle {

class PostProcessor {
 public:
  // Nothing around the text.
  PostProcessor() = default;

  // `is_token(id)` says whether the vocabulary has an id. Throws InputError that names an element which is not
  // supported, a template's token that "special_tokens" does not define, and an id that is no token. ByteLevel, which
  // only moves offsets, adds nothing. A template has at most 256 parts.
  PostProcessor(const JsonField& field, const std::function<bool(std::int32_t)>& is_token);

  std::vector<std::int32_t> apply(std::vector<std::int32_t> text, SpecialTokens special_tokens) const;

 private:
  static constexpr std::int32_t kText = -1;  // where the text stands in template_
  void add(const JsonField& field, const std::function<bool(std::int32_t)>& is_token);

  std::vector<std::int32_t> template_;  // empty: the text alone
};

}  // namespace heddle
