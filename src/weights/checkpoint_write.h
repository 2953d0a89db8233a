// Writes a model's files as Hugging Face lays them out; Checkpoint reads them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>

#include "weights/model_source.h"

namespace heddle {

inline constexpr std::size_t kDefaultShardBytes = 5'000'000'000;  // where transformers begins a new file, too

struct CheckpointWriteOptions {
  std::size_t max_shard_bytes = kDefaultShardBytes;  // of tensors; a file holds one at least
  // Bytes of tensors written so far, of source.total_bytes(). What it throws ends the writing. May be empty.
  std::function<void(std::size_t bytes_done)> on_progress;
};

// config.json, generation_config.json (if there is one) and the weights, into a folder that exists: model.safetensors,
// or shards and their index where one file would be larger than `max_shard_bytes`. Asks `source` for a few megabytes at
// a time. Throws Failure when a file cannot be written.
void write_checkpoint(const ModelSource& source, const std::filesystem::path& folder,
                      const CheckpointWriteOptions& options = {});

}  // namespace heddle
