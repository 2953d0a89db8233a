// The launch shape of linear_sm90_stream.cuh: tiles, threads and shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// How x is loaded into shared memory: whole, or each step's part beside the step's weights.
enum class StreamTokens { whole, by_steps };

template <int kRowTiles_, int kTokenTiles_, int kDepth_, StreamTokens kTokens_>
struct StreamConfig {
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * 32;         // that multiply
  static constexpr int kBlockThreads = kThreads + 32;  // and a warp that loads x
  static constexpr int kRowTiles = kRowTiles_;         // of 16 rows that share the loaded x
  static constexpr int kTokenTiles = kTokenTiles_;     // of 8 tokens
  static constexpr int kDepth = kDepth_;               // steps in flight
  static constexpr bool kWholeTokens = kTokens_ == StreamTokens::whole;
  static constexpr int kTileRows = kRowTiles * 16;
  static constexpr int kRowStride = kTileRows + 4;  // of sums: a warp's stores use all 32 banks
  static constexpr int kRowPieces = 4 * kRowTiles;  // per lane; a warp's are 4 rows of 128 bytes
  static constexpr int kWarpFeatures = 64, kStepFeatures = kWarps * kWarpFeatures;
  static constexpr int kTokens = 8 * kTokenTiles;
  // x of a step comes in TMA boxes [num_tokens, kBoxFeatures], in space for kTokens tokens. The boxes are as wide as
  // TMA allows. Two tokens that a warp reads at once lie in the same banks; that is left so, because x is a fifth of
  // its reads.
  static constexpr int kBoxFeatures = 256, kStepBoxes = kStepFeatures / kBoxFeatures;
  static constexpr std::uint32_t kBoxBytes = 2 * kTokens * kBoxFeatures;
  static constexpr std::uint32_t kStepTokenBytes = kWholeTokens ? 0 : kBoxBytes * kStepBoxes;
  static constexpr std::uint32_t kStepWeightBytes = 16 * kThreads * kRowPieces;
  static constexpr std::uint32_t kStepBytes = kStepWeightBytes + kStepTokenBytes;
  static constexpr std::size_t kRingBytes = std::size_t{kStepBytes} * kDepth;
  // In flight while the ring is filled for the first time: 64 KiB or more.
  static constexpr int kGroupsAhead = kStepWeightBytes < std::uint32_t{32} << 10 ? 4 : 2;
  static constexpr std::size_t kSumsBytes = std::size_t{4} * kRowStride * kTokens * kWarps;
  static_assert(kStepFeatures % kBoxFeatures == 0 && kBoxFeatures <= 256);
  static_assert(kSumsBytes % 128 == 0 && kStepWeightBytes % 128 == 0 && kBoxBytes % 128 == 0);
  // Leaves 8 KiB of an SM's 228 KiB to the small kernels that wait beside a GEMM.
  static_assert(kSumsBytes + kRingBytes <= std::size_t{219} << 10);
};

// Steps per tile: the same in all tiles and blocks.
template <class Config>
__host__ __device__ constexpr int steps_of_tile(int in_features) {
  return (in_features + Config::kStepFeatures - 1) / Config::kStepFeatures;
}

// What a block computes from the sums of its rows.
enum class StreamOutput {
  sums,    // of each row, one element of y
  swiglu,  // silu(gate) * up (swiglu.h): W's first half is gate, its second half up
};

// Rows of W per output. A tile of swiglu holds kTileRows / 2 rows of gate, then the rows of up of the same outputs.
constexpr int rows_of_output(StreamOutput output) {
  return output == StreamOutput::swiglu ? 2 : 1;
}

// Elements from one token's x to the next token's, where x is whole. Includes all steps and a padding such that two
// tokens that a warp reads at once lie in different banks.
template <class Config>
__host__ __device__ constexpr int whole_tokens_stride(int in_features) {
  return steps_of_tile<Config>(in_features) * Config::kStepFeatures + 32;
}

// Aligned to lines of 128 bytes, so that a row's copy into the ring fills one line, not halves of two.
template <class Config>
__host__ __device__ constexpr std::size_t whole_tokens_bytes(std::int64_t num_tokens, std::int64_t in_features) {
  if (!Config::kWholeTokens) return 0;
  const std::size_t bytes = static_cast<std::size_t>(num_tokens) * 2 *
                            static_cast<std::size_t>(whole_tokens_stride<Config>(static_cast<int>(in_features)));
  return (bytes + 127) / 128 * 128;
}

// Sums, x if it is loaded whole, and a ring of `steps`, at most kDepth.
template <class Config>
constexpr std::size_t stream_shared_bytes(std::int64_t num_tokens, std::int64_t in_features, std::int64_t steps) {
  const std::size_t slots = static_cast<std::size_t>(steps < Config::kDepth ? steps : Config::kDepth);
  return Config::kSumsBytes + whole_tokens_bytes<Config>(num_tokens, in_features) + slots * Config::kStepBytes;
}

}  // namespace heddle
