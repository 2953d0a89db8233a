#include "server/prompt_encoder.h"

#include <utility>

#include "base/error.h"
#include "server/api_error.h"

namespace heddle::server {

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, std::optional<ModelChatTemplate> chat_template)
    : tokenizer_(tokenizer), guard_(tokenizer), template_(std::move(chat_template)) {}

std::string PromptEncoder::render(const GenerationRequest& request) const {
  if (!template_)
    throw ApiError(400,
                   "the model has no chat template: use /v1/completions, or start the server with --chat-template");
  TemplateInput conversation = request.conversation;
  if (request.tool_choice == ToolChoice::none) conversation.tools = nullptr;
  for (auto* part : {&conversation.messages, &conversation.tools, &conversation.documents, &conversation.extra})
    guard_.mark(*part);
  try {
    return template_->render(conversation);
  } catch (const InputError& error) {
    throw ApiError(400, fmt::format("messages: the model's chat template rejects them: {}", error.what()), "messages");
  }
}

EncodedPrompts PromptEncoder::encode(const GenerationRequest& request, const RequestLimits& limits) const {
  EncodedPrompts encoded;
  std::int64_t total = 0;
  const auto add = [&](std::vector<std::int32_t> tokens) {
    total += std::ssize(tokens);
    if (total > limits.max_prompt_tokens)
      throw ApiError(400, fmt::format("more than {} tokens of prompts (max_prompt_tokens)", limits.max_prompt_tokens));
    encoded.tokens.push_back(std::move(tokens));
  };
  if (request.chat) {
    const std::string text = render(request);
    const std::string_view end = std::string_view(text).substr(0, text.find_last_not_of(" \n") + 1);
    encoded.opens_reasoning = end.ends_with("<think>");
    add(guard_.encode(text, request.special_tokens));
    return encoded;
  }
  for (const PromptText& prompt : request.prompts)
    if (const auto* text = std::get_if<std::string>(&prompt))
      add(encode_text(*text, request.special_tokens));
    else
      add(std::get<std::vector<std::int32_t>>(prompt));
  return encoded;
}

std::vector<std::int32_t> PromptEncoder::encode_text(const std::string& text, SpecialTokens special_tokens) const {
  return guard_.encode(guard_.marked(text), special_tokens);
}

}  // namespace heddle::server
