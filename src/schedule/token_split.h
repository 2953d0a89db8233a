// Smart-splitting (TokenWeave, 3.1.1): a batch is split in two so that one part computes while the other communicates,
// without more waves of thread blocks than the whole batch takes.
//
//   blocks(tokens) = ceil(tokens / tile_tokens) * blocks_per_tile     thread blocks of a kernel
//   waves(tokens)  = ceil(blocks / num_sms)
//   a split is good where waves(prefix) + waves(suffix) <= waves(all), summed over the kernels
//
// The paper's example: 300 blocks on 132 SMs take 3 waves; 150 + 150 would take 4, 132 + 168 take 3. smart_split takes
// the good split nearest to the middle; of two equally near, the one with the shorter prefix. Where no split is good (a
// batch of one wave) it returns the split with the fewest extra waves, and `extra_waves` lets the caller weigh them
// against the time that overlap hides. The prefix comes first in every sequence: the suffix attends to it.
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
  int prefix = 0;       // tokens from the first on; 0 only where the batch cannot be split
  int suffix = 0;       // the remaining tokens
  int extra_waves = 0;  // more than the waves of the whole batch; never negative

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

// The split with this prefix.
constexpr TokenSplit split_at(std::span<const TokenTiles> kernels, int prefix, int tokens, int num_sms) {
  const std::int64_t extra =
      waves(kernels, prefix, num_sms) + waves(kernels, tokens - prefix, num_sms) - waves(kernels, tokens, num_sms);
  return {prefix, tokens - prefix, static_cast<int>(extra)};
}

// Splits at a multiple of `granule` tokens: the largest tile_tokens of the kernels, or a page of the cache. A batch of
// at most one granule is all suffix. Integer arithmetic only, so all ranks get the same split. Preconditions:
// tokens >= 0, granule > 0, num_sms > 0.
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
    if (prefix > tokens - granule) break;  // the next one would lie past the end, and might overflow
  }
  return best;
}

// Two halves, the prefix rounded down to the granule: the baseline for smart_split.
constexpr TokenSplit equal_split(std::span<const TokenTiles> kernels, int tokens, int granule, int num_sms) {
  require(tokens >= 0 && granule > 0 && num_sms > 0);
  return split_at(kernels, tokens / 2 / granule * granule, tokens, num_sms);
}

// Proofs. They use split_at() and, once proved, waves(); nothing else from above.

// Counts the waves by placing blocks one by one, tile by tile.
constexpr bool waves_are_counted_right(std::span<const TokenTiles> kernels, int tokens, int num_sms) {
  std::int64_t sum = 0;
  for (const TokenTiles& kernel : kernels) {
    int busy = num_sms;  // SMs busy in the current wave; at num_sms the next block opens a new wave
    for (int first = 0; first < tokens; first += kernel.tile_tokens)
      for (int block = 0; block < kernel.blocks_per_tile; ++block) {
        sum += busy == num_sms ? 1 : 0;
        busy = busy == num_sms ? 1 : busy + 1;
      }
  }
  return waves(kernels, tokens, num_sms) == sum;
}

// The split lies on the granule and counts its waves. No other such split has fewer waves; none with as many lies
// nearer to the middle; none as near has a shorter prefix.
constexpr bool no_cut_is_better(std::span<const TokenTiles> kernels, int tokens, int granule, int num_sms) {
  const TokenSplit split = smart_split(kernels, tokens, granule, num_sms);
  if (split.prefix % granule != 0 || split.prefix + split.suffix != tokens) return false;
  if (tokens <= granule) return split == TokenSplit{0, tokens, 0};
  if (split.prefix <= 0 || split.suffix <= 0) return false;
  if (waves(kernels, split.prefix, num_sms) + waves(kernels, split.suffix, num_sms) !=
      waves(kernels, tokens, num_sms) + split.extra_waves)
    return false;
  const auto off = [](const TokenSplit& cut) { return distance(cut.prefix, cut.suffix); };
  for (int prefix = granule; prefix < tokens; prefix += granule) {
    const TokenSplit other = split_at(kernels, prefix, tokens, num_sms);
    if (other.extra_waves < split.extra_waves) return false;
    if (other.extra_waves > split.extra_waves || prefix == split.prefix) continue;
    if (off(other) < off(split) || (off(other) == off(split) && prefix < split.prefix)) return false;
  }
  return true;
}

// The prefix is at most half the batch, and less than a granule short of it.
constexpr bool halves_lie_on_the_granule(std::span<const TokenTiles> kernels, int tokens, int granule, int num_sms) {
  const TokenSplit split = equal_split(kernels, tokens, granule, num_sms);
  return split.prefix % granule == 0 && split.prefix <= tokens / 2 && tokens / 2 < split.prefix + granule &&
         split.prefix + split.suffix == tokens;
}

namespace token_split_example {
inline constexpr TokenTiles kKernel[]{{.tile_tokens = 1, .blocks_per_tile = 1}};  // tokens are thread blocks
static_assert(waves(kKernel, 300, 132) == 3);
static_assert(equal_split(kKernel, 300, 1, 132) == TokenSplit{150, 150, 1});
static_assert(smart_split(kKernel, 300, 1, 132) == TokenSplit{132, 168, 0});

inline constexpr TokenTiles kLayer[]{{.tile_tokens = 16, .blocks_per_tile = 3},
                                     {.tile_tokens = 5, .blocks_per_tile = 2}};
static_assert(waves_are_counted_right(kLayer, 0, 4) && waves_are_counted_right(kLayer, 1, 7) &&
                  waves_are_counted_right(kLayer, 100, 4) && waves_are_counted_right(kLayer, 101, 3),
              "proof failed: waves_are_counted_right");
static_assert(no_cut_is_better(kLayer, 100, 7, 4) && no_cut_is_better(kLayer, 101, 16, 5) &&
                  no_cut_is_better(kLayer, 33, 16, 132) && no_cut_is_better(kLayer, 7, 7, 4) &&
                  no_cut_is_better(kKernel, 300, 1, 132),
              "proof failed: no_cut_is_better");
static_assert(halves_lie_on_the_granule(kLayer, 100, 7, 4) && halves_lie_on_the_granule(kLayer, 6, 7, 4) &&
                  halves_lie_on_the_granule(kLayer, 101, 5, 4),
              "proof failed: halves_lie_on_the_granule");
}  // namespace token_split_example

}  // namespace heddle::schedule
