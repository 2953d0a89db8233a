// The folders of tests/data/llama/family, assembled as tools/goldens/make_llama_family.py describes.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "temporary_folder.h"
#include "weights/safetensors.h"

namespace heddle {

class LlamaFamily {
 public:
  using Rows = std::vector<std::vector<float>>;

  const nlohmann::json& cases() const { return json_["cases"]; }
  const nlohmann::json& rope() const { return json_["rope"]; }
  std::vector<std::int32_t> tokens() const { return json_["tokens"]; }
  std::vector<std::size_t> rows() const { return json_["rows"]; }

  const nlohmann::json& find(const std::string& name) const {
    const auto found = std::ranges::find_if(cases(), [&](const auto& c) { return c["name"] == name; });
    require(found != cases().end(), "no case {}", name);
    return *found;
  }

  // A golden tensor; a vector is one row.
  Rows golden(const std::string& name) const {
    for (const StoredTensor& tensor : logits_.tensors()) {
      if (tensor.name != name) continue;
      const auto columns = static_cast<std::size_t>(tensor.shape.back());
      Rows rows(tensor.bytes.size() / sizeof(float) / columns, std::vector<float>(columns));
      for (std::size_t i = 0; i < rows.size(); ++i)
        std::memcpy(rows[i].data(), tensor.bytes.data() + i * columns * sizeof(float), columns * sizeof(float));
      return rows;
    }
    throw_error<Failure>("no golden {}", name);
  }

  // Writes config.json, and the tensors that the case's model has.
  void write(const nlohmann::json& config, const std::vector<std::string>& optional,
             const std::filesystem::path& folder) const {
    constexpr std::string_view kOptional[] = {".bias", "q_norm.weight", "k_norm.weight"};
    std::vector<TensorToWrite> tensors;
    std::vector<std::span<const std::byte>> contents;
    for (const StoredTensor& tensor : weights_.tensors()) {
      const auto ends_name = [&](std::string_view end) { return tensor.name.ends_with(end); };
      if (std::ranges::any_of(kOptional, ends_name) && std::ranges::none_of(optional, ends_name)) continue;
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
      contents.push_back(tensor.bytes);
    }
    write_file(folder / "config.json", config.dump());
    write_safetensors(folder / "model.safetensors", tensors,
                      [&](std::size_t i, const ByteSink& sink) { sink(contents[i]); });
  }
  void write(const nlohmann::json& a_case, const std::filesystem::path& folder) const {
    write(a_case["config"], a_case["optional"], folder);
  }

 private:
  static std::filesystem::path data() { return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/family"; }

  nlohmann::json json_ = parse_json(read_file(data() / "family.json", 1 << 20), "family.json");
  SafetensorsFile weights_{data() / "weights.safetensors"};
  SafetensorsFile logits_{data() / "logits.safetensors"};
};

}  // namespace heddle
