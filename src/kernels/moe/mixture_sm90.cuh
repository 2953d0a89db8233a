// How the two kernels of a mixture of experts (mixture_sm90.cu) divide their work: rows of all experts over blocks, a block's
// rows in tiles, and rows along k in pieces. A slot of the ring holds a piece of a tile's eight rows.
#pragma once

#include <cstdint>

#include "base/checked.h"
#include "device/even_parts.h"
#include "kernels/moe/mixture.h"

namespace heddle {

enum class MixtureHalf { gate_up, down };

inline constexpr int kTileWeightRows = 8;  // the N dimension of mma.sync
inline constexpr int kMostPieceFeatures = 2048;
inline constexpr int kLineFeatures = 64;  // of 128 bytes: pieces are whole lines
inline constexpr int kSharedExperts = -1;
inline constexpr int kNoSlot = 0xff;

// A row of weights along k: `count` pieces of `size` features; the last one may be shorter.
struct RowPieces {
  int features, count, size;

  static RowPieces of(std::int64_t features) {
    const auto all = static_cast<int>(features);
    const int most = ceil_div(all, kMostPieceFeatures);
    const int size = most == 0 ? kLineFeatures : ceil_div(ceil_div(all, most), kLineFeatures) * kLineFeatures;
    return {.features = all, .count = ceil_div(all, size), .size = size};
  }
  __host__ __device__ int begin(int piece) const { return piece * size; }
  __host__ __device__ int length(int piece) const {
    return features - piece * size < size ? features - piece * size : size;
  }
};

// Which experts have tokens, ascending, and at which of its choices a token has an expert. In shared memory.
struct ChosenExperts {
  std::uint8_t slot_of[kMixtureExperts][kMixtureTokens];  // kNoSlot: the token has not chosen the expert
  std::int16_t active[kMixtureExperts];
  std::uint32_t mask[kMixtureExperts / 32];
  int num_active;

  // expert_of(token, k): the token's k-th choice, in range. One warp.
  template <class F>
  __device__ void collect(int num_tokens, int top_k, int num_experts, F expert_of) {
    static_assert(kMixtureTokens == sizeof(uint4) && kMixtureExperts / 32 <= 32);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int e = lane; e < num_experts; e += 32) *reinterpret_cast<uint4*>(slot_of[e]) = make_uint4(~0u, ~0u, ~0u, ~0u);
    if (lane < kMixtureExperts / 32) mask[lane] = 0;
    __syncwarp();
    for (int i = lane; i < num_tokens * top_k; i += 32) {
      const int token = i / top_k, expert = expert_of(token, i % top_k);
      slot_of[expert][token] = static_cast<std::uint8_t>(i % top_k);
      atomicOr(&mask[expert / 32], 1u << expert % 32);
    }
    __syncwarp();
    std::uint32_t word = lane < kMixtureExperts / 32 ? mask[lane] : 0;
    int up_to = __popc(word);
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(~0u, up_to, step);
      if (lane >= step) up_to += before;
    }
    if (lane == 31) num_active = up_to;
    for (int at = up_to - __popc(word); word != 0; word &= word - 1, ++at)
      active[at] = static_cast<std::int16_t>(32 * lane + __ffs(static_cast<int>(word)) - 1);
    __syncwarp();
  }
};

// Outputs [begin, end) of one expert, or of the shared ones. An output of the first half is a row of gate and the row of up,
// one of the second half a row.
struct MixtureSegment {
  int expert;  // or kSharedExperts
  int begin, end;
};

struct HalfShape {
  RowPieces routed, shared;
  int outputs, shared_outputs;  // of an expert; no shared outputs: no shared experts
  int pitch;                    // bytes from row to row of a slot

  __host__ __device__ int slot_bytes() const { return kTileWeightRows * pitch; }
  __device__ const RowPieces& pieces(const MixtureSegment& segment) const {
    return segment.expert == kSharedExperts ? shared : routed;
  }
  __device__ int outputs_of(const MixtureSegment& segment) const {
    return segment.expert == kSharedExperts ? shared_outputs : outputs;
  }
};

// Calls use(segment) for the block's even part of the outputs: those of the shared experts, whose weights are known before
// the router's choice, then those of all chosen experts. ready(): how many there are; it waits for the choice.
template <class Ready, class F>
__device__ void each_gate_segment(const HalfShape& shape, const ChosenExperts& chosen, Ready ready, F use) {
  const auto part = [](int count, int next) {
    return static_cast<int>(
        begin_of_part<std::uint64_t>(static_cast<std::uint64_t>(count), blockIdx.x + next, gridDim.x));
  };
  if (part(shape.shared_outputs, 0) < part(shape.shared_outputs, 1))
    use(MixtureSegment{kSharedExperts, part(shape.shared_outputs, 0), part(shape.shared_outputs, 1)});
  const int all = ready() * shape.outputs, end = part(all, 1);
  for (int from = part(all, 0); from < end;) {
    const int index = from / shape.outputs, begin = from - index * shape.outputs;
    const int count = min(end - from, shape.outputs - begin);
    use(MixtureSegment{chosen.active[index], begin, begin + count});
    from += count;
  }
}

inline constexpr int kRowTiles = 4;  // of the second half, whose sums a warp keeps at a time

// The same for the second half: each block has an even part of the rows of all experts, up to kRowTiles tiles at a time. After
// the segments of these rows finish(begin, end) is called.
template <class Ready, class F, class Finish>
__device__ void each_down_segment(const HalfShape& shape, const ChosenExperts& chosen, Ready ready, F use,
                                  Finish finish) {
  const auto rows = static_cast<std::uint64_t>(shape.outputs);
  const int begin = static_cast<int>(begin_of_part<std::uint64_t>(rows, blockIdx.x, gridDim.x));
  const int end = static_cast<int>(begin_of_part<std::uint64_t>(rows, blockIdx.x + 1, gridDim.x));
  const int times = ceil_div(end - begin, kRowTiles * kTileWeightRows);
  const int at_once = times == 0 ? 1 : ceil_div(end - begin, times);
  for (int from = begin; from < end; from += at_once) {
    const int to = min(end, from + at_once);
    const bool has_shared = shape.shared_outputs > 0;
    int count = has_shared ? 0 : ready();
    for (int i = has_shared ? -1 : 0; i < count; ++i) {
      use(MixtureSegment{i < 0 ? kSharedExperts : chosen.active[i], from, to});
      if (i < 0) count = ready();
    }
    finish(from, to);
  }
}

}  // namespace heddle
