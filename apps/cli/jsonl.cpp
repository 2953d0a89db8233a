#include "cli/jsonl.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/suggestion.h"

namespace heddle {

nlohmann::json id_of(const JsonField& line) {
  const auto id = line.find("id");
  if (!id) return {};
  if (!id->is_string() && !id->value().is_number_integer()) id->fail_expected("a string or a whole number");
  return id->value();
}

void refuse_unknown_fields(const JsonField& line, std::span<const std::string> known,
                           std::span<const FieldAdvice> advice, std::string_view what) {
  const auto advice_on = [&](const std::string& field) -> std::string {
    const auto given = std::ranges::find(advice, field, &FieldAdvice::field);
    if (given != advice.end()) return std::string(given->advice);
    if (const std::string near = nearest(field, known); !near.empty()) return fmt::format("did you mean \"{}\"?", near);
    return fmt::format("the fields of {} are {}", what, fmt::join(known, ", "));
  };
  for (const auto& [name, field] : line.members())
    if (std::ranges::find(known, name) == known.end())
      line.fail(fmt::format("unknown field {}: {}", shorten(nlohmann::json(name)), advice_on(name)));
}

bool is_plain_text(const std::string& file, std::string_view text) {
  const std::string extension = std::filesystem::path(file).extension().string();
  if (extension == ".txt") return true;
  if (extension == ".jsonl" || extension == ".json" || extension == ".ndjson") return false;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] != '{' && !text.starts_with(kByteOrderMark);
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::vector<TextLine> split_lines(std::string_view text, std::string_view where) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<TextLine> lines;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (is_blank(line)) continue;
    if (lines.size() == kMaxObjects)
      throw_error<InputError>("{}:{}: more than {} objects in one file (max_objects)", where, number, kMaxObjects);
    lines.push_back({.text = line, .number = number});
  }
  return lines;
}

nlohmann::json parse_object(std::string_view line, const std::string& where) {
  if (line.size() > kMaxLineBytes)
    throw_error<InputError>("{}: a line of more than {} bytes (max_line_bytes)", where, kMaxLineBytes);
  nlohmann::json object;
  try {
    object = parse_json(line, where);
  } catch (const InputError& error) {
    std::string what = error.what();  // `where` names the line already
    constexpr std::string_view kFirstLine = "line 1, ";
    if (const std::size_t at = what.find(kFirstLine, where.size()); at != std::string::npos)
      what.erase(at, kFirstLine.size());
    throw_error<InputError>("{}; expected one JSON object a line", what);
  }
  if (!object.is_object()) JsonField(object, where).fail_expected("an object");
  return object;
}

std::vector<JsonLine> parse_jsonl(std::string_view text, std::string_view where) {
  std::vector<JsonLine> objects;
  for (const TextLine& line : split_lines(text, where)) {
    std::string line_where = fmt::format("{}:{}", where, line.number);
    nlohmann::json object = parse_object(line.text, line_where);
    objects.push_back({std::move(object), std::move(line_where)});
  }
  return objects;
}

}  // namespace heddle
