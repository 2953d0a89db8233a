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

// A model of this size on so many ranks. The store itself is the machine's. What changes a step's times is part of it, so that
// a trial with ranks that share a GPU, say, decides nothing for ranks that have one each.
struct SplitKey {
  std::int64_t layers = 0;  // do not matter for the choice, but a model with fewer is another to its user
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  // of latent attention: the elements of a cached token
  std::int64_t experts = 0;
  std::string dtype = "stored";  // of the weights; "float32 in float32" where activations are not rounded
  int ranks = 1;
  DeviceKind device = DeviceKind::cpu;
  bool shared = false;   // several ranks on one GPU
  int transfer_sms = 0;  // of a GPU, while a step is in two parts: of tuned_split() alone
};

// What a choice depends on: "8192.28672.64h.8k.128d.0e.bfloat16.tp4.cuda".
std::string shape_name_of(const SplitKey& key);

// "80x8192.28672.64h.8k.128d.0e.bfloat16.tp4.cuda"; of ranks that share a GPU with ".shared". Each choice has a prefix of its own.
std::string name_of(const SplitKey& key);

// Nothing: not tuned, or not a number. SplitKind::none: measured, and never faster.
std::optional<SplitOptions> tuned_split(const TunedStore& store, const SplitKey& key);
void put_tuned_split(TunedStore& store, const SplitKey& key, const SplitOptions& split);

// Where nothing is tuned no step may become slower, so none is cut on the CPU, whose ranks share the cores, and none of a model
// with experts, which reads all of their weights for each part. Of other models on GPUs: from kUntunedSplitTokens on.
SplitOptions untuned_split(const SplitKey& key);
inline constexpr int kUntunedSplitTokens = 16384;

// One measured size of a step, whole and in two parts by turns.
struct SplitSample {
  int tokens = 0;
  int prefix_tokens = 0;  // of the first part; 0: such a step cannot be cut, and split_seconds is empty
  std::vector<double> whole_seconds;
  std::vector<double> split_seconds;  // [i] beside whole_seconds[i]
};

// Of a step's time in two parts over its time as a whole, pair by pair: the median and an interval that holds the true median
// with probability `confidence` whatever the distribution (order statistics; 0.95 at least where there are pairs enough).
struct PairedRatio {
  double median = 0, low = 0, high = 0;
  double confidence = 0;
};
PairedRatio paired_ratio(const SplitSample& sample);

// The fewest pairs by which a choice may be made: the interval of all five has a confidence of 0.94.
inline constexpr int kFewestPairs = 5;

// The choice that makes no measured size slower: the smallest measured size from which on every one is faster in two parts, by
// one per cent at least with its whole interval. SplitKind::none where the largest is not. `samples` by size, those that
// cannot be cut left out of account. Nothing: no sample says anything, as none can be cut or there are too few pairs.
std::optional<SplitOptions> choose_split(const std::vector<SplitSample>& samples);

}  // namespace heddle
