// The launch shape of linear_sm90_batch.cuh: tiles, threads and shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/mbarrier_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/linear/linear_batch_tiles.h"
#include "kernels/linear/linear_sm90_stream_shape.cuh"

namespace heddle {

// Tokens of the right operand; warpgroups that multiply, and times 64 rows of W that each has; blocks that share a
// tile's k.
template <StreamOutput kOutput_, int kTokens_, int kGroups_, int kTilesOfGroup_, int kCluster_>
struct BatchConfig {
  static constexpr StreamOutput kOutput = kOutput_;
  static constexpr int kParts = rows_of_output(kOutput);
  static constexpr int kTokens = kTokens_, kGroups = kGroups_, kTilesOfGroup = kTilesOfGroup_, kCluster = kCluster_;
  static constexpr int kTileRows = 64 * kGroups * kTilesOfGroup;
  static constexpr int kPartRows = kTileRows / kParts;  // of gate, and of up
  static constexpr int kGroupThreads = 128, kWarps = 4 * kGroups;
  static constexpr int kProducers = 2;  // a warp that loads W and one that loads x
  static constexpr int kThreads = 32 * (kWarps + kProducers);

  // A line is 128 bytes of a row.
  static constexpr int kLineFeatures = 64, kLineBytes = 2 * kLineFeatures;
  static constexpr int kLines = 2;  // of a row that a step loads
  static constexpr int kStepFeatures = kLines * kLineFeatures;
  static constexpr int kTokenLineBytes = kTokens * kLineBytes;
  // Steps of x on their way; a step of fewer rows is over sooner.
  static constexpr int kTokenSlots = kTileRows > 64 ? (kTokens > 32 ? 4 : 5) : (kTokens > 32 ? 6 : 8);

  // Sums that the other blocks of the cluster push here: those of the rows that this block stores. As threads hold
  // them, four at a time: [kCluster - 1][kGroups][kOwnWarps][kTilesOfGroup][kTokens / 8][32].
  static constexpr int kOwnWarps = 4 / kCluster;  // of each warpgroup, whose rows a block stores
  static constexpr int kFours = kTokens / 8;      // of a thread's sums of 64 rows
  static constexpr int kPushed = (kCluster - 1) * kGroups * kOwnWarps * kTilesOfGroup * kFours * 32;
  static constexpr std::uint32_t kPushedBytes = 16 * kPushed;

  // W has the rest, as many slots as a launch's tiles leave room for. Leaves 8 KiB of an SM's 228 KiB to the small
  // kernels that wait beside a GEMM.
  static constexpr int kRingBytes = (216 << 10) - kTokenSlots * kLines * kTokenLineBytes - int{kPushedBytes};
  static constexpr int kMostSlots = 16;

  // A slot of W: [kLines][kParts] times the rows of a launch's highest tile, not of kPartRows. WGMMA reads what lies
  // behind them, too; it makes sums that nobody stores.
  struct Shared {
    std::byte weights[kRingBytes];
    std::byte tokens[kTokenSlots][kLines][kTokenLineBytes];
    float4 pushed[kPushed > 0 ? kPushed : 1];
    TmaRing<sm90::Mbarrier, kMostSlots> weights_ring;
    TmaRing<sm90::Mbarrier, kTokenSlots> tokens_ring;
    sm90::Mbarrier merged, taken;  // `pushed` is complete; the other blocks have read what this one pushed
  };
  static constexpr std::size_t kAlignment = 1024;
  static constexpr std::size_t kSharedBytes = sizeof(Shared) + kAlignment;

  static_assert(kTokens % 8 == 0 && kTokens <= 64 && kTilesOfGroup % kParts == 0 && 4 % kCluster == 0);
  static_assert(kRingBytes % kAlignment == 0 && kTokenLineBytes % kAlignment == 0);
  static_assert(2 * kLines * kTileRows * kLineBytes <= kRingBytes && kPartRows <= 256);
  static_assert(kTileRows * kLineBytes <= sizeof(Shared::tokens));  // read behind the last slot
  static_assert(kSharedBytes <= (std::size_t{219} << 10));
};

}  // namespace heddle
