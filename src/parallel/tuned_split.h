// What `heddle tune token-weave` has found for a model on this machine: from which number of tokens on a step in two
// parts is faster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "parallel/split_rule.h"

namespace heddle {

class TunedStore;

// A model of this size on so many ranks. The store itself is the machine's.
struct SplitKey {
  std::int64_t layers = 0;  // do not matter for the choice, but a model with fewer is another to its user
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t experts = 0;
  int ranks = 1;
  DeviceKind device = DeviceKind::cpu;
};

// "token_weave.80x8192.28672.64h.0e.tp4.cuda"
std::string name_of(const SplitKey& key);

// Nothing: not tuned, or not a number. SplitKind::none: measured, and never faster.
std::optional<SplitOptions> tuned_split(const TunedStore& store, const SplitKey& key);
void put_tuned_split(TunedStore& store, const SplitKey& key, const SplitOptions& split);

// One measured size of a step.
struct SplitSample {
  int tokens = 0;
  double whole_seconds = 0;
  double split_seconds = 0;
};

// The choice that never makes a measured size slower: the smallest measured size from which on every one is faster in two
// parts, by one per cent at least, since less is noise. SplitKind::none where the largest is not. `samples` by size.
SplitOptions choose_split(const std::vector<SplitSample>& samples);

}  // namespace heddle
