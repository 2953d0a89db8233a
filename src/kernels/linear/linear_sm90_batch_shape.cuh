// The launch shape of linear_sm90_batch.cuh: tiles, threads and shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/mbarrier_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/linear/linear_batch_tiles.h"
#include "kernels/linear/linear_sm90_stream_shape.cuh"

namespace heddle {

// kTokens_: 32 or 64. kGroups_: warpgroups that multiply; each has kTilesOfGroup_ times 64 rows of W.
// kCluster_: blocks that share a tile's k.
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

  // A step is kBlocks blocks of 64 features, each a line of 128 bytes of a row. High tiles have one, so that the ring has
  // enough steps.
  static constexpr int kBlockFeatures = 64, kRowBytes = 2 * kBlockFeatures;
  static constexpr int kBlocks = kTileRows > 128 ? 1 : 2;
  static constexpr int kStepFeatures = kBlocks * kBlockFeatures;

  struct Slot {
    std::byte weights[kBlocks][kTileRows * kRowBytes];  // of gate, then of up
    std::byte tokens[kBlocks][kTokens * kRowBytes];
  };

  // Sums that the other blocks of the cluster push here: those of the rows that this block stores. As threads hold them,
  // four at a time: [kCluster - 1][kGroups][kOwnWarps][kTilesOfGroup][kTokens / 8][32].
  static constexpr int kOwnWarps = 4 / kCluster;  // of each warpgroup, whose rows a block stores
  static constexpr int kFours = kTokens / 8;      // of a thread's sums of 64 rows
  static constexpr int kPushed = (kCluster - 1) * kGroups * kOwnWarps * kTilesOfGroup * kFours * 32;
  static constexpr std::uint32_t kPushedBytes = 16 * kPushed;

  // Leaves 8 KiB of an SM's 228 KiB to the small kernels that wait beside a GEMM.
  static constexpr std::size_t kRingBytes = (std::size_t{216} << 10) - kPushedBytes;
  static constexpr int kMostSlots = 8;
  static constexpr int kSlots =
      kRingBytes / sizeof(Slot) < kMostSlots ? static_cast<int>(kRingBytes / sizeof(Slot)) : kMostSlots;
  // Steps of W on their way while the ring is filled for the first time, about 64 KiB: the kernels in between read a few
  // lines through the same queues.
  static constexpr int kStepsAhead = (std::size_t{64} << 10) / (kBlocks * kTileRows * kRowBytes);

  struct Shared {
    Slot slots[kSlots];
    float4 pushed[kPushed > 0 ? kPushed : 1];
    sm90::Mbarrier weights[kSlots];        // where W of a slot lands
    TmaRing<sm90::Mbarrier, kSlots> ring;  // `full`: where x lands; `empty`: both may be overwritten
    sm90::Mbarrier merged, taken;          // `pushed` is complete; the other blocks have read what this one pushed
  };
  static constexpr std::size_t kAlignment = 1024;
  static constexpr std::size_t kSharedBytes = sizeof(Shared) + kAlignment;

  static_assert(kTokens % 8 == 0 && kTokens <= 64 && kTilesOfGroup % kParts == 0 && 4 % kCluster == 0);
  static_assert(kSlots >= 3 && kStepsAhead >= 1 && kStepsAhead < kSlots && kPartRows <= 256);
  static_assert(sizeof(Slot) % kAlignment == 0 && kSharedBytes <= (std::size_t{219} << 10));
};

}  // namespace heddle
