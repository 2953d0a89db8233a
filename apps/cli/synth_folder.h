// A synthetic model as a folder that transformers and compatible programs can load.
#pragma once

#include <cstdint>
#include <filesystem>

#include "cli/interrupt.h"
#include "weights/synthetic_model.h"

namespace heddle {

// Writes config, tokenizer and weights into the existing `folder`, with a progress bar on standard error; a new file of
// weights begins at `max_shard_bytes`. Throws Failure when space is short or writing fails, Interrupted
// (cli/commands.h) after a signal.
void write_synthetic_folder(const SyntheticModel& model, const std::filesystem::path& folder,
                            std::uint64_t max_shard_bytes, const InterruptGuard& interrupt);

}  // namespace heddle
