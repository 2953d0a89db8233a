#include "server/guarded_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

constexpr std::string_view kMark = "\xEF\xB7\x90";         // U+FDD0
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the character that begins with `byte`.
std::size_t character_bytes(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return value < 0x80 ? 1 : value < 0xE0 ? 2 : value < 0xF0 ? 3 : 4;
}

}  // namespace

TextGuard::TextGuard(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_special(id)) specials_.push_back(tokenizer.token_text(id));
  std::erase(specials_, "");
}

std::string TextGuard::marked(std::string_view text) const {
  std::vector<std::size_t> marks;  // offsets at which a mark goes in
  for (const std::string& special : specials_)
    for (std::size_t at = text.find(special); at != std::string_view::npos; at = text.find(special, at + 1))
      marks.push_back(std::min(at + character_bytes(text[at]), text.size()));
  std::ranges::sort(marks);
  marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
  std::string result;
  result.reserve(text.size() + marks.size() * kMark.size());
  auto next = marks.begin();
  for (std::size_t at = 0; at < text.size();) {
    if (next != marks.end() && *next == at) {
      result += kMark;
      ++next;
    }
    const bool forged = text.substr(at).starts_with(kMark);
    result += forged ? kReplacement : text.substr(at, 1);
    at += forged ? kMark.size() : 1;
  }
  if (next != marks.end()) result += kMark;
  return result;
}

void TextGuard::mark(nlohmann::ordered_json& value) const {
  if (value.is_string())
    value = marked(value.get_ref<const std::string&>());
  else if (value.is_structured())
    for (auto& element : value) mark(element);
}

std::vector<std::int32_t> TextGuard::encode(std::string_view marked_text, SpecialTokens special_tokens) const {
  std::string text;
  text.reserve(marked_text.size());
  std::vector<std::size_t> guarded;
  for (std::size_t at = 0; at < marked_text.size();) {
    const std::size_t mark = std::min(marked_text.find(kMark, at), marked_text.size());
    text += marked_text.substr(at, mark - at);
    if (mark == marked_text.size()) break;
    if (!text.empty()) guarded.push_back(text.size() - 1);
    at = mark + kMark.size();
  }
  guarded.erase(std::unique(guarded.begin(), guarded.end()), guarded.end());
  return tokenizer_.encode(text, special_tokens, guarded);
}

}  // namespace heddle::server
