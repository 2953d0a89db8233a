// Encodes prompts, conversations by the model's chat template.
#pragma once

#include <optional>
#include <string>

#include "cli/generate/answer.h"
#include "cli/template_options.h"
#include "text/tokenizer/tokenizer.h"

namespace heddle {

class PromptEncoder {
 public:
  PromptEncoder(Tokenizer tokenizer, std::string model, TemplateOptions options);

  const Tokenizer& tokenizer() const { return tokenizer_; }

  // Fills in text and tokens of a prompt that has no error. Throws InputError, which does not name the prompt, when its
  // text is not UTF-8, when there is no chat template, and when the template rejects the conversation.
  void encode(EncodedPrompt& encoded);

 private:
  std::string render(const TemplateInput& conversation, const std::string& where);

  Tokenizer tokenizer_;
  std::string model_;
  TemplateOptions options_;
  std::optional<ModelChatTemplate> template_;  // loaded when the first conversation comes
  std::string no_template_;                    // why it could not be
  bool warned_of_tools_ = false;
};

}  // namespace heddle
