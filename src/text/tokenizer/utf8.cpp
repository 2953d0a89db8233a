#include "text/tokenizer/utf8.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace heddle {
namespace {

// Length of the ASCII prefix of `text`.
std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if (word & 0x8080808080808080u) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

Utf8Char first_char(std::string_view text) {
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1, false};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Char::kIllFormed, 1, false};
  const std::uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF (Unicode, table
  // 3-7).
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code_point = lead & (0x7Fu >> length);
  for (std::uint32_t index = 1; index < length; ++index) {
    if (index == text.size()) return {Utf8Char::kIllFormed, index, true};
    const unsigned next = byte(index);
    if (next < (index == 1 ? low : 0x80u) || next > (index == 1 ? high : 0xBFu))
      return {Utf8Char::kIllFormed, index, false};
    code_point = code_point << 6 | (next & 0x3F);
  }
  return {code_point, length, false};
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = ascii_prefix(text); at < text.size();) {
    const Utf8Char c = first_char(text.substr(at));
    if (c.code_point == Utf8Char::kIllFormed) return at;
    at += c.length;
    if (c.length == 1) at += ascii_prefix(text.substr(at));
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = find_invalid_utf8(text).value_or(text.size());
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    result += "\uFFFD";
    text.remove_prefix(first_char(text).length);
  }
  return result;
}

std::size_t cut_off_bytes(std::string_view text) {
  // The last lead byte decides: everything before it is complete or permanently ill-formed.
  for (std::size_t count = 1; count <= std::min<std::size_t>(3, text.size()); ++count) {
    const std::string_view tail = text.substr(text.size() - count);
    if ((static_cast<unsigned char>(tail[0]) & 0xC0) == 0x80) continue;
    const Utf8Char c = first_char(tail);
    return c.cut_off && c.length == count ? count : 0;
  }
  return 0;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | code_point >> 12);
    } else {
      put(0xF0 | code_point >> 18);
      put(0x80 | (code_point >> 12 & 0x3F));
    }
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

bool is_space(char32_t code_point) {
  return u_isUWhiteSpace(static_cast<UChar32>(code_point));
}

char32_t last_char(std::string_view text) {
  std::size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return first_char(text.substr(at)).code_point;
}

std::size_t skip_space(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Utf8Char c = first_char(text.substr(begin));
    if (!is_space(c.code_point)) break;
    begin += c.length;
  }
  return begin;
}

std::size_t skip_space_back(std::string_view text, std::size_t end, std::size_t least) {
  while (end > least) {
    std::size_t at = end - 1;
    while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_space(first_char(text.substr(at)).code_point)) break;
    end = at;
  }
  return end;
}

}  // namespace heddle
