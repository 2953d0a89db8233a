#include "weights/checkpoint.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "weights/folder_file.h"
#include "weights/other_formats.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIndexBytes = kMaxSafetensorsHeader;  // lists the same names

constexpr std::size_t kMaxShownPath = 160;

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kGenerationConfig = "generation_config.json";
constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

void check_folder(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found)
    throw_error<InputError>("{}: no such folder. Give the folder that holds config.json and the weights",
                            folder.string());
  if (error) throw_error<InputError>("{}: cannot open: {}", folder.string(), error.message());
  if (!fs::is_directory(status))
    throw_error<InputError>("{}: is not a folder. Give the folder that holds config.json and the weights",
                            folder.string());
}

std::shared_ptr<const nlohmann::json> read_object(const fs::path& path, std::size_t max_bytes) {
  const std::string text = read_file(path, max_bytes);
  auto object = std::make_shared<const nlohmann::json>(parse_json(text, path.string()));
  if (!object->is_object()) JsonField(*object, path.string()).fail_expected("an object");
  return object;
}

[[noreturn]] void fail_without_config(const fs::path& folder) {
  if (is_there(folder / kSingleFile) || is_there(folder / kIndex))
    throw_error<InputError>("{}: holds weights, but no {}. Is the download complete?", folder.string(), kConfig);
  if (const auto what = what_folder(folder)) throw InputError(*what);
  for (const std::string& name : names_in(folder))
    if (is_there(folder / name / kConfig))
      throw_error<InputError>("{}: holds no {}. Did you mean {}?", folder.string(), kConfig,
                              printable((folder / name).string(), kMaxShownPath));
  throw_error<InputError>("{}: holds no {}", folder.string(), kConfig);
}

[[noreturn]] void fail_without_weights(const fs::path& folder) {
  if (const auto what = what_folder(folder)) throw InputError(*what);
  throw_error<InputError>("{}: holds no weights; looked for {} and {}", folder.string(), kSingleFile, kIndex);
}

// Rejects shards outside the folder: an index must not name other files.
std::string shard_name(const JsonField& field) {
  std::string name = field.text();
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
    field.fail(fmt::format("{} is not the plain name of a file in this folder", shorten(field.value())));
  return name;
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& folder) : folder_(folder) {
  check_folder(folder_);
  if (!is_there(folder_ / kConfig)) fail_without_config(folder_);
  config_ = read_object(folder_ / kConfig, kMaxConfigBytes);
  if (is_there(folder_ / kGenerationConfig))
    generation_config_ = read_object(folder_ / kGenerationConfig, kMaxConfigBytes);

  if (is_there(folder_ / kSingleFile)) {  // transformers also looks for it first
    weights_path_ = folder_ / kSingleFile;
    open_shard(std::string(kSingleFile));
  } else if (is_there(folder_ / kIndex)) {
    weights_path_ = folder_ / kIndex;
    open_sharded();
  } else {
    fail_without_weights(folder_);
  }
}

void Checkpoint::open_shard(const std::string& file_name) {
  const fs::path path = folder_ / file_name;
  const auto file = std::make_shared<const SafetensorsFile>(path);
  for (const StoredTensor& tensor : file->tensors()) {
    Entry entry{{tensor.dtype, tensor.shape, tensor.bytes.size(), path.string()}, {tensor.bytes, file}};
    const auto [place, inserted] = tensors_.try_emplace(tensor.name, std::move(entry));
    if (!inserted)
      throw_error<InputError>("{}: tensor {} lies in {}, too", path.string(), quoted_name(tensor.name),
                              place->second.info.file);
    total_bytes_ += tensor.bytes.size();
  }
  shards_.push_back(file_name);
}

void Checkpoint::open_sharded() {
  const auto index = read_object(weights_path_, kMaxIndexBytes);
  const JsonField weight_map = JsonField(*index, weights_path_.string()).at("weight_map");
  if (!weight_map.is_object() || weight_map.value().empty())
    weight_map.fail_expected("an object that names the file of each tensor");

  std::set<std::string> shards;
  for (const auto& [name, file] : weight_map.value().items())
    shards.insert(shard_name({file, fmt::format("{}: {}", weight_map.path(), quoted_name(name))}));
  for (const std::string& shard : shards) {
    if (!is_there(folder_ / shard))
      throw_error<InputError>("{}: names the file {}, which is missing. Is the download complete?",
                              weights_path_.string(), quoted_name(shard));
    open_shard(shard);
  }
  check_against_index(weight_map);
}

void Checkpoint::check_against_index(const JsonField& weight_map) const {
  for (const auto& [name, file] : weight_map.value().items()) {
    const TensorInfo* info = find(name);
    const std::string path = (folder_ / file.get_ref<const std::string&>()).string();
    if (info == nullptr)
      throw_error<InputError>("{}: tensor {} is missing; {} says that it lies here", path, quoted_name(name), kIndex);
    if (info->file != path)
      throw_error<InputError>("{}: tensor {} lies in {}; {} says that it lies here", path, quoted_name(name),
                              info->file, kIndex);
  }
  for (const auto& [name, entry] : tensors_)
    if (!weight_map.value().contains(name))
      throw_error<InputError>("{}: tensor {} is not listed in {}", entry.info.file, quoted_name(name), kIndex);
}

Checkpoint Checkpoint::without_contents() const {
  Checkpoint outline = *this;
  outline.has_contents_ = false;
  return outline;
}

JsonField Checkpoint::config() const {
  return {*config_, (folder_ / kConfig).string()};
}

std::optional<JsonField> Checkpoint::generation_config() const {
  if (!generation_config_) return std::nullopt;
  return JsonField(*generation_config_, (folder_ / kGenerationConfig).string());
}

std::vector<std::string> Checkpoint::warnings() const {
  const auto adapter = adapter_beside_weights(folder_);
  return adapter ? std::vector{*adapter} : std::vector<std::string>();
}

std::vector<std::string> Checkpoint::weight_files() const {
  return shards_;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const auto& [name, entry] : tensors_) names.push_back(name);
  return names;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.info;
}

TensorRows Checkpoint::rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const {
  require(has_contents_, "{}: rows of a checkpoint without contents", where());
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), "{}: there is no tensor {}", where(), quoted_name(name));
  const auto& [info, all] = found->second;
  const std::int64_t total_rows = info.shape.empty() ? 1 : info.shape[0];
  require(first_row >= 0 && num_rows >= 0 && first_row <= total_rows && num_rows <= total_rows - first_row,
          "{}: rows {} + {} of tensor {}, which has {}", where(), first_row, num_rows, quoted_name(name), total_rows);
  if (num_rows == 0) return {{}, all.owner};
  const std::size_t row_bytes = info.size_bytes / static_cast<std::size_t>(total_rows);
  return {all.bytes.subspan(static_cast<std::size_t>(first_row) * row_bytes,
                            static_cast<std::size_t>(num_rows) * row_bytes),
          all.owner};
}

std::string Checkpoint::where() const {
  return weights_path_.string();
}

}  // namespace heddle
