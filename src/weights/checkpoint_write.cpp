#include "weights/checkpoint_write.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "weights/safetensors.h"

namespace heddle {
namespace {

using Names = std::vector<std::string_view>;

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

void write_json(const std::filesystem::path& path, const nlohmann::json& value) {
  write_file(path, value.dump(2) + "\n");
}

// The names in order, with a new shard where the next tensor would not fit.
std::vector<Names> into_shards(const ModelSource& source, std::size_t max_bytes) {
  std::vector<Names> shards;
  std::size_t size = 0;
  for (const std::string_view name : source.names()) {
    const std::size_t bytes = source.find(name)->size_bytes;
    if (shards.empty() || bytes > max_bytes - std::min(size, max_bytes)) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().push_back(name);
    size += bytes;
  }
  return shards;
}

class Writer {
 public:
  Writer(const ModelSource& source, const CheckpointWriteOptions& options) : source_(source), options_(options) {}

  void write(const std::filesystem::path& path, const Names& names) {
    std::vector<TensorToWrite> tensors;
    for (const std::string_view name : names) {
      const TensorInfo& info = *source_.find(name);
      tensors.push_back({std::string(name), info.dtype, info.shape});
    }
    write_safetensors(path, tensors, [&](std::size_t i, ByteSink sink) { write_tensor(names[i], sink); });
  }

 private:
  void write_tensor(std::string_view name, ByteSink sink) {
    const TensorInfo& info = *source_.find(name);
    const std::int64_t num_rows = info.shape.empty() ? 1 : info.shape[0];
    if (info.size_bytes == 0) return;
    const std::size_t row_bytes = info.size_bytes / static_cast<std::size_t>(num_rows);
    const auto piece_rows = static_cast<std::int64_t>(std::max<std::size_t>(1, kPieceBytes / row_bytes));
    for (std::int64_t row = 0; row < num_rows; row += piece_rows) {
      const TensorRows rows = source_.rows(name, row, std::min(piece_rows, num_rows - row));
      read_mapped(rows.bytes);  // throws if the file was truncated, instead of ending with SIGBUS
      sink(rows.bytes);
      done_ += rows.bytes.size();
      if (options_.on_progress) options_.on_progress(done_);
    }
  }

  const ModelSource& source_;
  const CheckpointWriteOptions& options_;
  std::size_t done_ = 0;
};

}  // namespace

void write_checkpoint(const ModelSource& source, const std::filesystem::path& folder,
                      const CheckpointWriteOptions& options) {
  require(source.has_contents(), "{}: has no contents to write", source.where());
  write_json(folder / "config.json", source.config().value());
  if (const auto config = source.generation_config()) write_json(folder / "generation_config.json", config->value());

  Writer writer(source, options);
  const std::vector<Names> shards = into_shards(source, options.max_shard_bytes);
  if (shards.size() <= 1) {
    writer.write(folder / "model.safetensors", shards.empty() ? Names() : shards[0]);
    return;
  }
  nlohmann::json weight_map = nlohmann::json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    writer.write(folder / file, shards[i]);
    for (const std::string_view name : shards[i]) weight_map[std::string(name)] = file;
  }
  write_json(folder / "model.safetensors.index.json",
             {{"metadata", {{"total_size", source.total_bytes()}}}, {"weight_map", weight_map}});
}

}  // namespace heddle
