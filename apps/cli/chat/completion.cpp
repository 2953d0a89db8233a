#include "cli/chat/completion.h"

#include <algorithm>
#include <filesystem>

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSave = "/save ", kLoad = "/load ";
// With a trailing space where arguments may follow.
constexpr std::string_view kCommands[] = {"/exit",  "/help", kLoad,    "/params ", "/quit", "/regenerate",
                                          "/reset", kSave,   "/shift", "/system ", "/undo"};

// The names in `directory` that begin with `prefix`; folders with a slash. Hidden names only if the prefix begins with
// a dot.
std::vector<std::string> names_in(const fs::path& directory, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix) || (prefix.empty() && name.starts_with('.'))) continue;
    std::error_code ignored;
    if (entry->is_directory(ignored)) name += '/';
    names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

// Precondition: all `candidates` begin with `typed`.
LineCompletion choose(std::vector<std::string> candidates, std::string_view typed) {
  if (candidates.empty()) return {};
  std::string_view common = candidates.front();
  for (const std::string& candidate : candidates)
    common = common.substr(0, std::ranges::mismatch(common, candidate).in1 - common.begin());
  while (common.size() < candidates.front().size() && (candidates.front()[common.size()] & 0xC0) == 0x80)
    common.remove_suffix(1);  // two names may differ within a character
  LineCompletion completion{.inserted = std::string(common.substr(std::min(typed.size(), common.size()))),
                            .choices = {}};
  if (candidates.size() > 1) completion.choices = std::move(candidates);
  return completion;
}

}  // namespace

std::vector<std::string> chat_commands() {
  std::vector<std::string> names;
  for (const std::string_view command : kCommands) names.emplace_back(command.substr(0, command.find(' ')));
  return names;
}

LineCompletion complete_line(std::string_view line) {
  static_assert(kSave.size() == kLoad.size());
  if (line.starts_with(kSave) || line.starts_with(kLoad)) {
    const std::string_view path = line.substr(std::min(line.find_first_not_of(' ', kSave.size()), line.size()));
    const std::size_t name = path.rfind('/') + 1;  // of npos: 0
    return choose(names_in(name == 0 ? "." : fs::path(path.substr(0, name)), path.substr(name)), path.substr(name));
  }
  std::vector<std::string> commands;
  for (const std::string_view command : kCommands)
    if (line.starts_with('/') && command.starts_with(line)) commands.emplace_back(command);
  return choose(std::move(commands), line);
}

}  // namespace heddle
