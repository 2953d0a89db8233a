#include "server/answer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/utf8.h"

namespace heddle::server {
namespace {

// The bytes that a token adds to a text, which may be a part of a character; of a special token its name.
std::string token_text(std::int32_t id, const Tokenizer& tokenizer) {
  if (id >= tokenizer.vocab_size()) return {};  // a padded vocabulary's
  try {
    if (const auto bytes = tokenizer.token_bytes(id)) return *bytes;
  } catch (const InputError&) {  // the bytes depend on the tokens around it
  }
  return tokenizer.token_text(id);
}

// A token's text for JSON. Bytes that are no whole characters are written as OpenAI does, like \xe2\x80, behind `mark`.
std::string shown_text(const std::string& text, std::string_view mark) {
  if (!find_invalid_utf8(text)) return text;
  std::string shown(mark);
  for (const char c : text) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return shown;
}

// Characters that a token adds to its text. One that is cut between tokens belongs to the first of them.
std::size_t num_characters(std::int32_t id, const Tokenizer& tokenizer) {
  if (id < tokenizer.vocab_size() && tokenizer.is_special(id)) return 0;  // left out of texts
  return static_cast<std::size_t>(
      std::ranges::count_if(token_text(id, tokenizer), [](char c) { return (c & 0xC0) != 0x80; }));
}

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json chat_token(std::int32_t id, double logprob, const Tokenizer& tokenizer) {
  const std::string text = token_text(id, tokenizer);
  return {{"token", shown_text(text, "")}, {"logprob", logprob}, {"bytes", bytes_of(text)}};
}

}  // namespace

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string completion_token(std::int32_t id, const Tokenizer& tokenizer) {
  return shown_text(token_text(id, tokenizer), "bytes:");
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
    const std::string text = completion_token(token.id, tokenizer);
    texts.push_back(text);
    logprobs.push_back(token.logprob ? Json(*token.logprob) : Json());
    Json top = Json::object();
    for (const TokenLogprob& other : token.top) {
      const std::string other_text = completion_token(other.id, tokenizer);
      if (!top.contains(other_text)) top[other_text] = other.logprob;  // likeliest first
    }
    if (token.logprob && !top.contains(text)) top[text] = *token.logprob;
    tops.push_back(token.logprob ? std::move(top) : Json());
    offsets.push_back(offset);
    offset += num_characters(token.id, tokenizer);
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
    add(token.id, *token.logprob, token.rank);
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
