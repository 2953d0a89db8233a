// The measured tables by which rank 0 chooses how ranks compute a step (StepChoices).
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "collectives/algorithm.h"
#include "parallel/decode_choice.h"
#include "parallel/tp_mode.h"
#include "parallel/tuned_gather.h"
#include "parallel/tuned_split.h"
#include "step/step_choices.h"

namespace heddle {

std::string_view name_of(SumForm form);

// One line: steps with more tokens than the line before says, up to and including up_to_tokens.
struct SumLine {
  int up_to_tokens = std::numeric_limits<int>::max();
  SumForm form = SumForm::of_mode;
  std::optional<SumForm> unsharded = {};  // of steps that cannot be sharded; nothing: `form`

  friend bool operator==(const SumLine&, const SumLine&) = default;
};
using SumTable = std::vector<SumLine>;  // by size; the last line has no limit

struct ChoiceTables {
  SumTable forms;                          // of sums; empty: as the mode has them
  CutOffs sums;                            // of all-reduces, by bytes; empty: the default of collectives
  DecodeTable decode;                      // the attention of decode steps; empty: separate operators
  GatherTable qkv_gather, gate_up_gather;  // of sharded sums; empty: push
};

// For a step of so many tokens, for each of which blocks leave `bytes_per_token`: how ranks add.
StepChoices choices_for(const ChoiceTables& tables, int num_tokens, std::size_t bytes_per_token);

// What a step's sums run with; nothing: the default. Throws InvalidArgument for what is no algorithm.
std::optional<Choice> sum_choice(const StepChoices& choices);

// One measured size of a step.
struct SumSample {
  int tokens = 0;
  double separate_seconds = 0;
  double fused_seconds = 0;
  std::optional<double> sharded_seconds = {};  // of models that can
};

// Each measured size decides for itself and for smaller ones down to the next, the largest for all above. Of separate, fused
// and sharded a later one is chosen where it is faster than those before by one per cent at least, since less is noise.
// `samples` by size, at least one.
SumTable choose_sums(const std::vector<SumSample>& samples);

// The table for steps that cannot be sharded, as those in two parts.
SumTable unsharded(const SumTable& table);

// What was measured for a model on so many ranks of this machine; nothing: not tuned.
struct TunedModes {
  std::optional<SplitOptions> split;
  std::optional<SumTable> sums;
};

// How ranks add, and by what rank 0 chooses for each step.
struct ModeChoice {
  TpMode mode = TpMode::standard;
  SplitOptions split = {};  // of TpMode::weave
  SumTable sums;
};

// What `--tp-mode auto` stands for: the mode that has all that was measured to be faster for some size of a step. Its
// smaller steps stay whole, and its sums are fused or sharded only where that was faster. Ranks that shard sums cut no step: if
// the smallest step that was faster in two parts was also faster sharded, sums are sharded. Where nothing was faster,
// Heddle's all-reduce, which on GPUs is not that of TpMode::standard. So no size is slower than with it. Where sums were not
// measured, and no step is cut, GPUs fuse those of all but small steps, as was fastest on two H200s (docs/results/token_weave.md).
ModeChoice choose_mode(const TunedModes& tuned, const SplitKey& key);

// Of a mode that somebody asked for, where `heddle tune sums` has not run: as the mode does, but on GPUs sequence's small steps
// fused: on two H200s a layer of Llama-3.3-70B was faster so at 1024 tokens (docs/notes/token_weave.md).
SumTable untuned_sums(TpMode mode, DeviceKind device);

// What `heddle tune sums` has left in the machine's store for a model on so many ranks. Nothing: not tuned, or no table.
std::optional<SumTable> tuned_sums(const TunedStore& store, const SplitKey& key);
void put_tuned_sums(TunedStore& store, const SplitKey& key, const SumTable& table);

}  // namespace heddle
