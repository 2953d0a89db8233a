// Names models that are not in Hugging Face's layout with safetensors, and what to do with them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace heddle {

// What the file at `path` is, as the end of a sentence that begins with its name; nothing if it is not known.
std::optional<std::string> what_file(const std::filesystem::path& path);

// What a folder is that lacks config.json or weights, as a whole sentence that begins with a path: a LoRA adapter, GGUF
// files, pickled weights, an incomplete download and others. Nothing if it is not known.
std::optional<std::string> what_folder(const std::filesystem::path& folder);

// The adapter in the folder of a whole model, as a whole sentence: it is not applied. Nothing if there is none.
std::optional<std::string> adapter_beside_weights(const std::filesystem::path& folder);

}  // namespace heddle
