#include "text/chat_template/word_wrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "text/chat_template/meter.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

using Chunk = std::u32string_view;

bool is_blank(char32_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool is_letter(char32_t c) {
  return (in_class(c, CharClass::alnum) || c == '_') && !in_class(c, CharClass::decimal);
}
bool is_word_or_punctuation(char32_t c) {
  return in_class(c, CharClass::alnum) || std::u32string_view(U"_!\"'&.,?").find(c) != std::u32string_view::npos;
}
bool is_white(Chunk chunk) {
  return std::ranges::all_of(chunk, [](char32_t c) { return is_space(c); });
}

// Splits a text where lines may end: implements textwrap's regular expressions wordsep_re and wordsep_simple_re.
class Cutter {
 public:
  Cutter(Chunk text, bool at_hyphens) : text_(text), at_hyphens_(at_hyphens) {}

  std::deque<Chunk> run() {
    std::deque<Chunk> chunks;
    for (std::size_t begin = 0, end; begin < text_.size(); begin = end) {
      end = end_of_chunk(begin);
      chunks.push_back(text_.substr(begin, end - begin));
    }
    return chunks;
  }

 private:
  char32_t at(std::size_t i) const { return i < text_.size() ? text_[i] : U' '; }
  bool letter_at(std::size_t i) const { return i < text_.size() && is_letter(text_[i]); }

  std::size_t end_of_chunk(std::size_t begin) const {
    std::size_t end = begin;
    while (end < text_.size() && is_blank(text_[end])) ++end;
    if (end > begin) return end;
    if (at_hyphens_)
      if (const std::size_t dash = end_of_dash(begin); dash > begin) return dash;
    for (++end; end < text_.size() && !is_blank(text_[end]); ++end) {
      if (!at_hyphens_) continue;
      if (hyphen_at(end)) return end + 1;
      if (end_of_dash(end) > end) return end;
    }
    return end;
  }

  // The end of two or more hyphens between words, or `begin` where there are none.
  std::size_t end_of_dash(std::size_t begin) const {
    if (begin == 0 || at(begin) != '-' || !is_word_or_punctuation(text_[begin - 1])) return begin;
    std::size_t end = begin;
    while (at(end) == '-') ++end;
    const bool word = end < text_.size() && (in_class(text_[end], CharClass::alnum) || text_[end] == '_');
    return end - begin >= 2 && word ? end : begin;
  }

  // A hyphen in a hyphenated word: after two letters (or one letter after a hyphen), and before two.
  bool hyphen_at(std::size_t i) const {
    if (at(i) != '-' || !letter_at(i - 1)) return false;
    const bool behind = i >= 2 && (letter_at(i - 2) || (text_[i - 2] == '-' && i >= 3 && letter_at(i - 3)));
    return behind && letter_at(i + 1) && (letter_at(i + 2) || (at(i + 2) == '-' && letter_at(i + 3)));
  }

  Chunk text_;
  bool at_hyphens_;
};

// How much of a chunk longer than a line goes onto this line, which has room for `room`.
std::size_t part_of_long_chunk(Chunk chunk, std::size_t room, const WrapRules& rules) {
  if (rules.break_on_hyphens && chunk.size() > room && room > 0) {
    const std::size_t hyphen = chunk.rfind('-', room - 1);
    if (hyphen != Chunk::npos && hyphen > 0 && chunk.substr(0, hyphen).find_first_not_of('-') != Chunk::npos)
      return hyphen + 1;
  }
  return room;
}

std::string utf8(Chunk text) {
  std::string result;
  for (const char32_t c : text) append_code_point(result, c);
  return result;
}

}  // namespace

std::vector<std::string> wrap_words(std::string_view paragraph, const WrapRules& rules) {
  if (rules.width < 1) throw TemplateError(fmt::format("invalid width {} (must be > 0)", rules.width));
  const auto width = static_cast<std::size_t>(rules.width);
  std::u32string text;
  for (std::size_t i = 0; i < paragraph.size(); i += code_point_size(paragraph, i)) text += code_point(paragraph, i);

  std::deque<Chunk> chunks = Cutter(text, rules.break_on_hyphens).run();
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    if (!lines.empty() && is_white(chunks.front())) chunks.pop_front();
    // Chunks follow each other in the text, so a line is a substring.
    if (chunks.empty()) break;
    const char32_t* const begin = chunks.front().data();
    std::size_t length = 0;
    Chunk last;
    const auto take = [&](std::size_t size) {
      last = chunks.front().substr(0, size);
      length += size;
      chunks.front().remove_prefix(size);
      if (chunks.front().empty()) chunks.pop_front();
    };
    while (!chunks.empty() && length + chunks.front().size() <= width) take(chunks.front().size());
    if (!chunks.empty() && chunks.front().size() > width) {
      if (rules.break_long_words) {
        take(part_of_long_chunk(chunks.front(), width - length, rules));
      } else if (length == 0) {
        take(chunks.front().size());
      }
    }
    if (is_white(last)) length -= last.size();
    if (length > 0) lines.push_back(utf8({begin, length}));
  }
  return lines;
}

}  // namespace heddle::jinja
