// Smart-splitting (TokenWeave, 3.1.1): a batch is cut in two, so that one half computes while the other communicates,
// without more waves of thread blocks than the whole batch would take.
//
//   blocks(tokens) = ceil(tokens / tile_tokens) * blocks_per_tile     thread blocks of a kernel
//   waves(tokens)  = ceil(blocks / num_sms)
//   a cut is good where waves(prefix) + waves(suffix) <= waves(all), summed over the kernels
//
// The paper's example: 300 blocks on 132 SMs take 3 waves; 150 + 150 would take 4, 132 + 168 take 3. Of the good cuts
// ours is the one nearest to the middle; of two equally near the one with the shorter prefix. Where there is none (a
// batch of one wave) the cut with the fewest extra waves is returned, and `extra_waves` says how many, so that the
// caller can weigh them against what it hides. The prefix comes first in every sequence: the suffix attends to it.
#pragma once

#include <cstdint>
#include <span>

#include "schedule/transfer.h"

namespace heddle::schedule {

// How one kernel of a layer covers the tokens: a GEMM with 128 x 256 tiles and n output columns has tile_tokens = 128
// and blocks_per_tile = ceil(n / 256). Both are positive.
struct TokenTiles {
  int tile_tokens;
  int blocks_per_tile;
};

struct TokenSplit {
  int prefix = 0;       // tokens, from the first on; 0 only where there is nothing to cut
  int suffix = 0;       // the others
  int extra_waves = 0;  // over those of the whole batch; never negative

  friend constexpr bool operator==(const TokenSplit&, const TokenSplit&) = default;
};

// Waves of all kernels for `tokens` tokens. Precondition: tokens >= 0, num_sms > 0.
constexpr std::int64_t waves(std::span<const TokenTiles> kernels, int tokens, int num_sms) {
  require(tokens >= 0 && num_sms > 0);
  std::int64_t sum = 0;
  for (const TokenTiles& kernel : kernels) {
    const std::int64_t tiles = (std::int64_t{tokens} + kernel.tile_tokens - 1) / kernel.tile_tokens;
    sum += (tiles * kernel.blocks_per_tile + num_sms - 1) / num_sms;
  }
  return sum;
}

// The cut that this prefix makes.
constexpr TokenSplit split_at(std::span<const TokenTiles> kernels, int prefix, int tokens, int num_sms) {
  const std::int64_t extra =
      waves(kernels, prefix, num_sms) + waves(kernels, tokens - prefix, num_sms) - waves(kernels, tokens, num_sms);
  return {prefix, tokens - prefix, static_cast<int>(extra)};
}

// Cuts at a multiple of `granule` tokens: the largest tile_tokens of the kernels, or a page of the cache. A batch of at
// most one granule is all suffix. All ranks get the same cut: integers alone. Preconditions: tokens >= 0, granule > 0,
// num_sms > 0.
constexpr TokenSplit smart_split(std::span<const TokenTiles> kernels, int tokens, int granule, int num_sms) {
  require(tokens >= 0 && granule > 0 && num_sms > 0);
  TokenSplit best{.suffix = tokens};
  bool found = false;
  for (int prefix = granule; prefix < tokens; prefix += granule) {
    const TokenSplit cut = split_at(kernels, prefix, tokens, num_sms);
    if (!found || cut.extra_waves < best.extra_waves ||
        (cut.extra_waves == best.extra_waves && distance(cut.prefix, cut.suffix) < distance(best.prefix, best.suffix)))
      best = cut;
    found = true;
    if (prefix > tokens - granule) break;  // the next would be past the end, and might overflow
  }
  return best;
}

// Two halves, the prefix rounded down to the granule: what smart_split is compared with.
constexpr TokenSplit equal_split(std::span<const TokenTiles> kernels, int tokens, int granule, int num_sms) {
  require(tokens >= 0 && granule > 0 && num_sms > 0);
  return split_at(kernels, tokens / 2 / granule * granule, tokens, num_sms);
}

namespace token_split_example {
inline constexpr TokenTiles kKernel[]{{.tile_tokens = 1, .blocks_per_tile = 1}};  // tokens are thread blocks
static_assert(waves(kKernel, 300, 132) == 3);
static_assert(equal_split(kKernel, 300, 1, 132) == TokenSplit{150, 150, 1});
static_assert(smart_split(kKernel, 300, 1, 132) == TokenSplit{132, 168, 0});
}  // namespace token_split_example

}  // namespace heddle::schedule
