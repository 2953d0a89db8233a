// JSON lines: files with one object per line, for prompts and texts.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace heddle {

constexpr std::size_t kMaxLinesBytes = std::size_t{1} << 30;  // of a file
constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxObjects = std::size_t{1} << 20;    // of a file
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // with which programs of Windows begin a file

struct JsonLine {
  nlohmann::json object;
  std::string where;  // "prompts.jsonl:12", to begin a message with
};

// A line that is not blank.
struct TextLine {
  std::string_view text;
  std::size_t number = 0;  // from 1, blank lines included
};

// A field's name in other programs' files, and what to do about it.
struct FieldAdvice {
  std::string_view field;
  std::string_view advice;
};

// The member "id", a string or a whole number; null: there is none. Throws InputError for another value.
nlohmann::json id_of(const JsonField& line);

// Throws InputError for the first field that is not among `known`: with the advice on it, or with the nearest that is
// known, or with all of them; `what` has them ("a prompt").
void refuse_unknown_fields(const JsonField& line, std::span<const std::string> known,
                           std::span<const FieldAdvice> advice, std::string_view what);

// Whether the whole of a file is one text, not JSON lines. *.txt always is, *.jsonl, *.json and *.ndjson never are;
// anything else, pipes ("-") too, is one unless its first character is a brace.
bool is_plain_text(const std::string& file, std::string_view text);

// Whether a line holds nothing but spaces.
bool is_blank(std::string_view line);

// The lines of a file's contents, without blank ones. Accepts CRLF and a byte order mark at the start. `where` names the
// file. Throws InputError for more than 2^20 of them.
std::vector<TextLine> split_lines(std::string_view text, std::string_view where);

// The object in one line. Throws InputError, which begins with `where`, when it is not a JSON object, nests deeper than
// 64 levels or is longer than 64 MiB.
nlohmann::json parse_object(std::string_view line, const std::string& where);

// The objects of a file's contents in order. Throws as the two above do.
std::vector<JsonLine> parse_jsonl(std::string_view text, std::string_view where);

}  // namespace heddle
