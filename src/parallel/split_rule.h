// When a step is worth computing in two parts, and where it is cut (TokenWeave, 3.1.1 and 4.2): no step of few tokens,
// and where the waves of the GEMMs allow.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedule/token_split.h"

namespace heddle {

enum class SplitKind : std::uint8_t {
  none,   // a step stays whole
  equal,  // halves
  smart   // without more waves than the whole step has, as near to halves as possible
};
std::string_view name_of(SplitKind kind);

struct SplitOptions {
  SplitKind kind = SplitKind::none;
  int min_tokens = 0;  // of a step that is cut
  // Of a GPU's SMs, what such a step gives to exchanges between ranks; at most half, and 0 only in TpMode::no_comm, in which
  // no kernel waits for a peer. On two H200s 8192 tokens of llama-3-8b took 118.7 ms with 8, and 128.6 with 16.
  int transfer_sms = 8;
};

// What the kernels of a layer make of a number of tokens; empty where no step can be cut.
struct LayerTiles {
  std::vector<schedule::TokenTiles> kernels;
  int num_sms = 1;

  // Tokens of the largest tile: where a step may be cut.
  int granule() const;
};

// The tokens of the first part of a step of `num_tokens`; 0: it stays whole, because it has fewer than the options say,
// or than two tiles. Depends on nothing else, so every step of a size is cut alike.
int prefix_tokens(const SplitOptions& options, const LayerTiles& tiles, int num_tokens);

}  // namespace heddle
