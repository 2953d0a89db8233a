// The folders of tests/data/experts: weights are made here, as tools/goldens/make_experts.py makes them.
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
#include "weights/safetensors.h"
#include "weights/synthetic_values.h"

namespace heddle {

class ExpertsFamily {
 public:
  using Rows = std::vector<std::vector<float>>;

  const nlohmann::json& cases() const { return json_["cases"]; }
  std::vector<std::int32_t> tokens() const { return json_["tokens"]; }
  std::vector<std::size_t> rows() const { return json_["rows"]; }

  const nlohmann::json& find(const std::string& name) const {
    const auto found = std::ranges::find_if(cases(), [&](const auto& c) { return c["name"] == name; });
    require(found != cases().end(), "no case {}", name);
    return *found;
  }

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

  // What a test changes in a folder.
  struct Change {
    std::string without;   // this tensor
    std::string poisoned;  // the first element of this one is NaN
  };

  // Writes config.json and the weights, in bfloat16. A tensor that is "made_as" another one has that one's elements.
  void write(const nlohmann::json& a_case, const std::filesystem::path& folder, const Change& change = {}) const {
    std::vector<TensorToWrite> tensors;
    std::vector<nlohmann::json> recipes;
    for (const auto& recipe : a_case["tensors"]) {
      if (recipe["name"] == change.without) continue;
      tensors.push_back({recipe["name"], stored_dtype(DType::bfloat16), recipe["shape"]});
      recipes.push_back(recipe);
    }
    write_file(folder / "config.json", a_case["config"].dump());
    write_safetensors(folder / "model.safetensors", tensors, [&](std::size_t i, const ByteSink& sink) {
      const auto& recipe = recipes[i];
      std::size_t count = 1;
      for (const std::int64_t size : tensors[i].shape) count *= static_cast<std::size_t>(size);
      std::vector<std::uint16_t> values(count);
      fill_synthetic({.key = synthetic_key(a_case["name"].get<std::string>(), recipe.value("made_as", tensors[i].name)),
                      .scale = static_cast<float>(recipe["deviation"].get<double>() / kUnitDeviation),
                      .offset = recipe["offset"]},
                     0, count, DType::bfloat16, values.data());
      if (tensors[i].name == change.poisoned) values[0] = 0x7fc0;
      sink(std::as_bytes(std::span(values)));
    });
  }

 private:
  static std::filesystem::path data() { return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/experts"; }

  nlohmann::json json_ = parse_json(read_file(data() / "experts.json", 1 << 20), "experts.json");
  SafetensorsFile logits_{data() / "experts.safetensors"};
};

}  // namespace heddle
