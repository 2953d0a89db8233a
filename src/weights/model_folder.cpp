#include "weights/model_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/suggestion.h"
#include "weights/folder_file.h"
#include "weights/other_formats.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRefBytes = 4096;
constexpr std::size_t kMaxRepositoryName = 96;  // as huggingface_hub has it
constexpr std::size_t kMaxShownSnapshots = 4;

fs::path folder_of_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return {};
  const std::string_view text = value;
  if (!text.starts_with("~/")) return text;
  const char* home = std::getenv("HOME");
  return home == nullptr ? fs::path() : fs::path(home) / text.substr(2);
}

// Letters, digits, "_", "-" and "."; as huggingface_hub, neither "--" nor "..".
bool is_plain_name(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !name.empty() && std::ranges::all_of(name, is_plain) && name.find("--") == std::string_view::npos &&
         name.find("..") == std::string_view::npos && !name.starts_with('-') && !name.starts_with('.') &&
         !name.ends_with('-') && !name.ends_with('.');
}

std::vector<std::string> snapshots_in(const fs::path& repository) {
  std::vector<std::string> names = names_in(repository / "snapshots");
  for (std::string& name : names) name = printable(name, 100);
  if (names.size() > kMaxShownSnapshots) names.resize(kMaxShownSnapshots);
  return names;
}

// The snapshot of the revision main.
fs::path snapshot_of(const fs::path& repository, std::string_view name) {
  const fs::path ref = repository / "refs" / "main";
  if (!is_there(ref)) {
    const std::vector<std::string> snapshots = snapshots_in(repository);
    if (snapshots.empty())
      throw_error<InputError>("{}: has no snapshot; download it again: hf download {}", repository.string(), name);
    throw_error<InputError>(
        "{}: the revision main was not downloaded ({} is missing), only {}. Give that folder's path ({}/<name>), or "
        "download main: hf download {}",
        repository.string(), "refs/main", fmt::join(snapshots, ", "), (repository / "snapshots").string(), name);
  }
  std::string revision = read_file(ref, kMaxRefBytes);
  revision.erase(std::min(revision.find_last_not_of(" \t\r\n") + 1, revision.size()));
  if (!is_plain_name(revision))
    throw_error<InputError>("{}: expected the name of a snapshot, found {}", ref.string(), printable(revision, 100));
  fs::path snapshot = repository / "snapshots" / revision;
  if (!is_there(snapshot))
    throw_error<InputError>("{}: names the snapshot {}, which is missing; download it again: hf download {}",
                            ref.string(), revision, name);
  return snapshot;
}

// The folder itself, unless it is one of the cache: models--ORG--NAME, or snapshots in it.
fs::path snapshot_in(const fs::path& folder) {
  const fs::path plain = folder.filename().empty() ? folder.parent_path() : folder;
  const fs::path repository = plain.filename() == "snapshots" ? plain.parent_path() : plain;
  const auto name = repository_of_folder(repository);
  return name && is_there(repository / "snapshots") ? snapshot_of(repository, *name) : folder;
}

// A folder beside the one that was named, else a model in the cache, of nearly the same name; empty: none.
std::string similar_model(const std::string& model) {
  constexpr std::size_t kMaxShown = 160;
  const fs::path path(model), above = path.parent_path();
  std::vector<std::string> folders = names_in(above.empty() ? "." : above), repositories;
  std::error_code error;
  std::erase_if(folders, [&](const std::string& name) { return !fs::is_directory(above / name, error); });
  if (const std::string name = nearest(path.filename().string(), folders); !name.empty())
    return printable((above / name).string(), kMaxShown);
  const fs::path cache = hub_cache();
  for (const std::string& name : cache.empty() ? std::vector<std::string>() : names_in(cache))
    if (const auto repository = repository_of_folder(name)) repositories.push_back(*repository);
  return printable(nearest(model, repositories), kMaxShown);
}

[[noreturn]] void fail_missing(const std::string& model) {
  const std::string near = similar_model(model);
  const std::string meant = near.empty() ? std::string() : fmt::format(" Did you mean {}?", near);
  if (is_repository_name(model)) {
    const fs::path cache = hub_cache();
    throw_error<InputError>(
        "{}: no such folder, and no such model in the cache of Hugging Face{}.{} it: hf download {} (from the "
        "Python package huggingface_hub), then give the same name",
        model, cache.empty() ? std::string() : fmt::format(" ({})", cache.string()),
        meant.empty() ? " Download" : meant + " Or download", model);
  }
  throw_error<InputError>("{}: no such folder.{} Give the folder that holds config.json and the weights{}", model,
                          meant, is_plain_name(model) ? ", or ORG/NAME of a model in the cache of Hugging Face" : "");
}

fs::path folder_in_cache(std::string_view name) {
  const fs::path cache = hub_cache();
  if (cache.empty()) return {};
  std::string folder = "models--" + std::string(name);
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
  return is_there(cache / folder) ? cache / folder : fs::path();
}

}  // namespace

std::optional<std::string> repository_of_folder(const fs::path& folder) {
  std::string name = folder.filename().string();
  constexpr std::string_view kPrefix = "models--";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.erase(0, kPrefix.size());
  if (const std::size_t dashes = name.find("--"); dashes != std::string::npos) name.replace(dashes, 2, "/");
  return name;
}

bool is_repository_name(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash != std::string_view::npos && name.size() <= kMaxRepositoryName && is_plain_name(name.substr(0, slash)) &&
         is_plain_name(name.substr(slash + 1));
}

fs::path hub_cache() {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})  // the second is its older name
    if (fs::path folder = folder_of_variable(variable); !folder.empty()) return folder;
  if (const fs::path home = folder_of_variable("HF_HOME"); !home.empty()) return home / "hub";
  if (const fs::path cache = folder_of_variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "huggingface" / "hub";
  const fs::path home = folder_of_variable("HOME");
  return home.empty() ? home : home / ".cache" / "huggingface" / "hub";
}

fs::path model_folder(const std::string& model) {
  std::error_code error;
  const fs::file_status status = fs::status(model, error);
  if (status.type() != fs::file_type::not_found) {
    if (error) throw_error<InputError>("{}: cannot open: {}", model, error.message());
    if (!fs::is_directory(status))
      throw_error<InputError>("{}: {}", model,
                              what_file(model).value_or("is not a folder. Give the folder that holds config.json and "
                                                        "the weights"));
    return snapshot_in(model);
  }
  const bool repository = is_repository_name(model);
  if (repository || is_plain_name(model))
    if (const fs::path folder = folder_in_cache(model); !folder.empty()) return snapshot_of(folder, model);
  for (const std::string_view site : {"https://huggingface.co/", "huggingface.co/"})
    if (model.starts_with(site) && is_repository_name(model.substr(site.size())))
      throw_error<InputError>(
          "{}: is a page, and Heddle reads folders. Give the model's name, {}, after hf download {}", model,
          model.substr(site.size()), model.substr(site.size()));
  fail_missing(model);
}

}  // namespace heddle
