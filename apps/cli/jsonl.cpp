#include "cli/jsonl.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "cli/input.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxObjects = std::size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

std::vector<JsonLine> read_jsonl(const std::string& file) {
  const InputText input = read_input(file, kMaxFileBytes);
  return parse_jsonl(input.text, input.where);
}

std::vector<JsonLine> parse_jsonl(std::string_view text, std::string_view where) {
  std::string_view rest = text;
  if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());

  std::vector<JsonLine> lines;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;

    std::string line_where = fmt::format("{}:{}", where, number);
    if (line.size() > kMaxLineBytes)
      throw_error<InputError>("{}: a line of more than {} bytes (max_line_bytes)", line_where, kMaxLineBytes);
    if (lines.size() == kMaxObjects)
      throw_error<InputError>("{}: more than {} objects in one file (max_objects)", line_where, kMaxObjects);
    nlohmann::json object = parse_json(line, line_where);
    if (!object.is_object()) JsonField(object, line_where).fail_expected("an object");
    lines.push_back({std::move(object), std::move(line_where)});
  }
  return lines;
}

}  // namespace heddle
