// A model's folder in the layout of Hugging Face: config.json, generation_config.json, and the weights in
// model.safetensors or in the shards of model.safetensors.index.json.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "weights/model_source.h"
#include "weights/safetensors.h"

namespace heddle {

class Checkpoint : public ModelSource {
 public:
  // Reads the JSON files and the headers of all shards, and maps the shards; rows() copies nothing, and its views stay
  // valid as long as their owner. Throws InputError when the folder or one of its files is missing or malformed, and
  // when the index and the shards do not list the same tensors.
  explicit Checkpoint(const std::filesystem::path& folder);

  // A copy with names, dtypes and shapes only, for checks that read no weights.
  Checkpoint without_contents() const;

  const std::filesystem::path& folder() const { return folder_; }
  JsonField config() const override;
  std::optional<JsonField> generation_config() const override;
  std::vector<std::string> warnings() const override;  // an adapter beside the weights

  std::vector<std::string> weight_files() const;  // names of the shards, sorted
  std::size_t total_bytes() const override { return total_bytes_; }

  std::vector<std::string_view> names() const override;
  const TensorInfo* find(std::string_view name) const override;
  TensorRows rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const override;
  bool has_contents() const override { return has_contents_; }
  std::string where() const override;  // model.safetensors, or the index

 private:
  struct Entry {
    TensorInfo info;
    TensorRows all;
  };

  void open_shard(const std::string& file_name);
  void open_sharded();
  void check_against_index(const JsonField& weight_map) const;

  std::filesystem::path folder_;
  std::filesystem::path weights_path_;  // model.safetensors or model.safetensors.index.json
  std::shared_ptr<const nlohmann::json> config_;
  std::shared_ptr<const nlohmann::json> generation_config_;  // null: there is none
  std::vector<std::string> shards_;
  std::map<std::string, Entry, std::less<>> tensors_;
  std::size_t total_bytes_ = 0;
  bool has_contents_ = true;
};

}  // namespace heddle
