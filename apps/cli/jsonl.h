// JSON lines: files with one object per line, for prompts and texts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

struct JsonLine {
  nlohmann::json object;
  std::string where;  // "prompts.jsonl:12", to begin a message with
};

// Every line of the file (read_input) in order, without blank ones. Accepts CRLF and a byte order mark at the start.
// Throws InputError that names the line when one is not a JSON object, nests deeper than 64 levels or is longer than 64
// MiB; and for a file above 1 GiB or with more than 2^20 objects.
std::vector<JsonLine> read_jsonl(const std::string& file);

// The same for a file's contents; `where` names it in messages.
std::vector<JsonLine> parse_jsonl(std::string_view text, std::string_view where);

}  // namespace heddle
