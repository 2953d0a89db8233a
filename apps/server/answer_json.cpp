#include "server/answer_json.h"

#include <utility>

namespace heddle::server {
namespace {

std::string token_text(std::int32_t id, const Tokenizer& tokenizer) {
  return id < tokenizer.vocab_size() ? tokenizer.token_text(id) : std::string();  // a padded vocabulary's
}

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json chat_token(std::int32_t id, double logprob, const Tokenizer& tokenizer) {
  const std::string text = token_text(id, tokenizer);
  return {{"token", text}, {"logprob", logprob}, {"bytes", bytes_of(text)}};
}

}  // namespace

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_string(const std::string& text) {
  return json_text(Json(text));
}

std::string sse_event(const std::string& data) {
  return "data: " + data + "\n\n";
}

Json completion_logprobs(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer, std::size_t& offset) {
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const ScoredToken& token : tokens) {
    const std::string text = token_text(token.id, tokenizer);
    texts.push_back(text);
    logprobs.push_back(token.logprob ? Json(*token.logprob) : Json());
    Json top = Json::object();
    for (const TokenLogprob& other : token.top) {
      const std::string other_text = token_text(other.id, tokenizer);
      if (!top.contains(other_text)) top[other_text] = other.logprob;  // likeliest first
    }
    if (token.logprob && !top.contains(text)) top[text] = *token.logprob;
    tops.push_back(token.logprob ? std::move(top) : Json());
    offsets.push_back(offset);
    offset += text.size();
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json chat_logprobs(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const ScoredToken& token : tokens) {
    Json entry = chat_token(token.id, token.logprob.value_or(0), tokenizer);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : token.top)
      entry["top_logprobs"].push_back(chat_token(top.id, top.logprob, tokenizer));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json prompt_logprobs(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const ScoredToken& token : tokens) {
    if (!token.logprob) {
      list.push_back(nullptr);
      continue;
    }
    Json entry = Json::object();
    const auto add = [&](std::int32_t id, double logprob, const Json& rank) {
      entry[std::to_string(id)] = {{"logprob", logprob}, {"rank", rank}, {"decoded_token", token_text(id, tokenizer)}};
    };
    add(token.id, *token.logprob, Json());
    for (std::size_t i = 0; i < token.top.size(); ++i) add(token.top[i].id, token.top[i].logprob, i + 1);
    list.push_back(std::move(entry));
  }
  return list;
}

Json usage_json(std::int64_t num_prompt_tokens, std::int64_t num_answer_tokens) {
  return {{"prompt_tokens", num_prompt_tokens},
          {"completion_tokens", num_answer_tokens},
          {"total_tokens", num_prompt_tokens + num_answer_tokens}};
}

Json tool_call_json(const std::string& id, const std::string& name, const std::string& arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

}  // namespace heddle::server
