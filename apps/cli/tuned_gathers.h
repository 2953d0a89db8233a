// The GEMMs of a model that `heddle tune all-gather-linear` tunes, and what `--tp-mode sequence` does by it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "cli/model_options.h"
#include "parallel/choice_tables.h"
#include "parallel/tuned_gather.h"
#include "weights/model_source.h"

namespace heddle {

// The GEMMs behind the norms of attention and of the feed-forward network.
struct GatherKeys {
  GatherKey qkv, gate_up;
};

// `devices`: of all ranks. Nothing: a model with experts or latent attention, or whose weights have no dtype of Heddle.
std::optional<GatherKeys> gather_keys_of(const ModelSource& source, const ModelOptions& options,
                                         const std::vector<Device>& devices);

// Sets the gathers of `tables` to what this machine's store has; what is not tuned stays as it is.
void add_tuned_gathers(ChoiceTables& tables, const ModelSource& source, const ModelOptions& options,
                       const std::vector<Device>& devices);

// For --verbose: what steps of which size do, and the measurement that says so.
std::string text_of_gathers(const ChoiceTables& tables);

}  // namespace heddle
