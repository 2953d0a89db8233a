// Writes a model's files in the layout of Hugging Face; Checkpoint reads them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>

#include "weights/model_source.h"

namespace heddle {

inline constexpr std::size_t kDefaultShardBytes = 5'000'000'000;  // transformers' limit, too

struct CheckpointWriteOptions {
  std::size_t max_shard_bytes = kDefaultShardBytes;  // of tensors; a file holds at least one
  // Receives the bytes of tensors written so far, of source.total_bytes(). An exception from it stops the writing. May
  // be empty.
  std::function<void(std::size_t bytes_done)> on_progress;
};

// Writes config.json, generation_config.json (if there is one) and the weights into an existing folder:
// model.safetensors, or shards and their index where one file would exceed `max_shard_bytes`. Reads a few megabytes of
// `source` at a time. Throws Failure when a file cannot be written.
void write_checkpoint(const ModelSource& source, const std::filesystem::path& folder,
                      const CheckpointWriteOptions& options = {});

}  // namespace heddle
