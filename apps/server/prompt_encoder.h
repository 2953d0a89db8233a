// Requests to tokens: the texts of a completion, or a conversation through the model's chat template.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/generation_request.h"
#include "server/guarded_text.h"
#include "text/chat_template/model_chat_template.h"

namespace heddle::server {

struct EncodedPrompts {
  std::vector<std::vector<std::int32_t>> tokens;  // of each prompt
  bool opens_reasoning = false;  // the prompt ends with "<think>": the answer begins within the model's reasoning
};

// Immutable: any number of threads may encode.
class PromptEncoder {
 public:
  PromptEncoder(const Tokenizer& tokenizer, std::optional<ModelChatTemplate> chat_template);

  // Throws ApiError 400: what the template rejects, no template, too many tokens; InputError as Tokenizer::encode does.
  EncodedPrompts encode(const GenerationRequest& request, const RequestLimits& limits) const;

  // A text as /tokenize takes it.
  std::vector<std::int32_t> encode_text(const std::string& text, SpecialTokens special_tokens) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  std::string render(const GenerationRequest& request) const;

  Tokenizer tokenizer_;
  TextGuard guard_;
  std::optional<ModelChatTemplate> template_;
};

}  // namespace heddle::server
