// tokenizer.json's "post_processor": adds tokens around a text.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace heddle {

class PostProcessor {
 public:
  // Adds nothing.
  PostProcessor() = default;

  // `is_token(id)` says whether the vocabulary has an id. Throws InputError that names an unsupported element, a
  // template's token that "special_tokens" does not define, or an unknown id. ByteLevel only moves offsets and adds
  // nothing. A template has at most 256 parts.
  PostProcessor(const JsonField& field, const std::function<bool(std::int32_t)>& is_token);

  std::vector<std::int32_t> apply(std::vector<std::int32_t> text, SpecialTokens special_tokens) const;

 private:
  static constexpr std::int32_t kText = -1;  // the position of the text in template_
  void add(const JsonField& field, const std::function<bool(std::int32_t)>& is_token);

  std::vector<std::int32_t> template_;  // empty: the text alone
};

}  // namespace heddle
