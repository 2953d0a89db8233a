// The folder of what a user calls a model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

// Where the libraries of Hugging Face keep what they download: $HF_HUB_CACHE, else $HF_HOME/hub, else
// $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Empty without any of these variables and $HOME.
std::filesystem::path hub_cache();

// `model` if that exists. Of a repository in the cache's layout (models--ORG--NAME) it is the snapshot that refs/main
// names. If nothing of that name exists, "ORG/NAME" or "NAME" is looked up in hub_cache(). Throws InputError when there
// is no such folder (with the command that downloads it), when the cache does not have the revision main, and for a
// file, with what it is (a GGUF file, say).
std::filesystem::path model_folder(const std::string& model);

// ORG/NAME of the cache's folder models--ORG--NAME; nothing for any other folder.
std::optional<std::string> repository_of_folder(const std::filesystem::path& folder);

// Whether `name` may be a repository of Hugging Face: "ORG/NAME".
bool is_repository_name(std::string_view name);

}  // namespace heddle
