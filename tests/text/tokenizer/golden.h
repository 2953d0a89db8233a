// Tokenizers of tests/data/tokenizer, unchanged or modified by a test.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "temporary_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace heddle {

inline std::filesystem::path golden_folder() {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/tokenizer";
}

inline nlohmann::json read_golden(const std::filesystem::path& name) {
  return nlohmann::json::parse(read_file(golden_folder() / name, std::size_t{16} << 20));
}

inline Tokenizer load_text(const std::string& tokenizer_json) {
  return Tokenizer::from_json(tokenizer_json, "", "test");
}

// The tokenizer `name` after a JSON merge patch (RFC 7396).
inline Tokenizer load_patched(const std::string& name, const nlohmann::json& patch) {
  nlohmann::json root = read_golden(name + "/tokenizer.json");
  root.merge_patch(patch);
  return load_text(root.dump());
}

using Merges = std::vector<std::pair<std::string, std::string>>;

// Characters and the results of `merges`, numbered in order: for tests of one stage.
inline nlohmann::json tiny_tokenizer(const std::string& characters, const Merges& merges = {}) {
  nlohmann::json vocab = nlohmann::json::object();
  for (const char c : characters) vocab.emplace(std::string(1, c), vocab.size());
  for (const auto& [left, right] : merges) vocab.emplace(left + right, vocab.size());
  return {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

}  // namespace heddle
