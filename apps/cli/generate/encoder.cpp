#include "cli/generate/encoder.h"

#include <utility>

#include "base/error.h"

namespace heddle {

PromptEncoder::PromptEncoder(Tokenizer tokenizer, std::string model, TemplateOptions options)
    : tokenizer_(std::move(tokenizer)), model_(std::move(model)), options_(std::move(options)) {}

void PromptEncoder::encode(EncodedPrompt& encoded) {
  Prompt& prompt = encoded.prompt;
  if (prompt.conversation) {
    encoded.text = render(*prompt.conversation, prompt.where);
    encoded.tokens = tokenizer_.encode(encoded.text, SpecialTokens::omit);  // the template writes its own
  } else {
    encoded.text = std::move(prompt.text);
    encoded.tokens = tokenizer_.encode(encoded.text);
  }
}

std::string PromptEncoder::render(const TemplateInput& conversation, const std::string& where) {
  if (!no_template_.empty()) throw InputError(no_template_);
  if (!template_) {
    try {
      template_ = load_template(model_, options_);
    } catch (const InputError& error) {
      no_template_ = error.what();
      throw;
    }
  }
  TemplateInput input = conversation;
  input.extra = assigned_variables(options_);
  input.extra.update(conversation.extra);  // the prompt's own win
  std::string text = template_->render(input);
  if (!warned_of_tools_) warned_of_tools_ = warn_of_tools_left_out(*template_, input, text, where);
  return text;
}

}  // namespace heddle
