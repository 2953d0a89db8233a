// What a launch of linear_sm90_stream.cuh looks like: tiles, threads and shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

// Where x is in shared memory: whole, or each step's part beside the step's weights.
enum class StreamTokens { whole, by_steps };

template <int kRowTiles_, int kTokenTiles_, int kDepth_, StreamTokens kTokens_>
struct StreamConfig {
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * 32;         // that multiply
  static constexpr int kBlockThreads = kThreads + 32;  // and a warp that brings x
  static constexpr int kRowTiles = kRowTiles_;         // of 16 rows, that share what is read of x
  static constexpr int kTokenTiles = kTokenTiles_;     // of 8 tokens
  static constexpr int kDepth = kDepth_;               // steps on their way
  static constexpr bool kWholeTokens = kTokens_ == StreamTokens::whole;
  static constexpr int kTileRows = kRowTiles * 16;
  static constexpr int kRowStride = kTileRows + 4;  // of sums: a warp's stores fall on all 32 banks
  static constexpr int kRowPieces = 4 * kRowTiles;  // of a lane; a warp's are 4 rows' 128 bytes
  static constexpr int kWarpFeatures = 64, kStepFeatures = kWarps * kWarpFeatures;
  static constexpr int kTokens = 8 * kTokenTiles;
  // x of a step comes in boxes [num_tokens, kBoxFeatures], in room for kTokens; they are as wide as the copy engine
  // takes them. Two tokens that a warp reads at once lie in the same banks: x is a fifth of what it reads, so that is
  // let be.
  static constexpr int kBoxFeatures = 256, kStepBoxes = kStepFeatures / kBoxFeatures;
  static constexpr std::uint32_t kBoxBytes = 2 * kTokens * kBoxFeatures;
  static constexpr std::uint32_t kStepTokenBytes = kWholeTokens ? 0 : kBoxBytes * kStepBoxes;
  static constexpr std::uint32_t kStepWeightBytes = 16 * kThreads * kRowPieces;
  static constexpr std::uint32_t kStepBytes = kStepWeightBytes + kStepTokenBytes;
  static constexpr std::size_t kRingBytes = std::size_t{kStepBytes} * kDepth;
  // On their way while the ring is filled for the first time: 64 KiB or more.
  static constexpr int kGroupsAhead = kStepWeightBytes < std::uint32_t{32} << 10 ? 4 : 2;
  static constexpr std::size_t kSumsBytes = std::size_t{4} * kRowStride * kTokens * kWarps;
  static_assert(kStepFeatures % kBoxFeatures == 0 && kBoxFeatures <= 256);
  static_assert(kSumsBytes % 128 == 0 && kStepWeightBytes % 128 == 0 && kBoxBytes % 128 == 0);
  // Leaves the small kernels that wait beside a product 8 KiB of a multiprocessor's 228.
  static_assert(kSumsBytes + kRingBytes <= std::size_t{219} << 10);
};

// Steps of a tile, which all but the last block's tiles have in common with those of every other block.
template <class Config>
__host__ __device__ constexpr int steps_of_tile(int in_features) {
  return (in_features + Config::kStepFeatures - 1) / Config::kStepFeatures;
}

// What a block makes of the sums of its rows.
enum class StreamOutput {
  sums,    // of each row, one of y
  swiglu,  // silu(gate) * up (swiglu.h): rows of W's first half are gates, of its second half ups
};

// Rows of W that make one of y. A tile of swiglu holds kTileRows / 2 gates, then the ups of the same outputs.
constexpr int rows_of_output(StreamOutput output) {
  return output == StreamOutput::swiglu ? 2 : 1;
}

// Elements from a token's whole x to the next token's: to the end of the last step, and on so far that what a warp
// reads of two tokens at once lies in different banks.
template <class Config>
__host__ __device__ constexpr int whole_tokens_stride(int in_features) {
  return steps_of_tile<Config>(in_features) * Config::kStepFeatures + 32;
}

// Whole lines of 128 bytes, so that what is copied of a row into the ring behind lies in one, not in halves of two.
template <class Config>
__host__ __device__ constexpr std::size_t whole_tokens_bytes(std::int64_t num_tokens, std::int64_t in_features) {
  if (!Config::kWholeTokens) return 0;
  const std::size_t bytes = static_cast<std::size_t>(num_tokens) * 2 *
                            static_cast<std::size_t>(whole_tokens_stride<Config>(static_cast<int>(in_features)));
  return (bytes + 127) / 128 * 128;
}

// Sums, x if it is there as a whole, and a ring of `steps`, at most kDepth.
template <class Config>
constexpr std::size_t stream_shared_bytes(std::int64_t num_tokens, std::int64_t in_features, std::int64_t steps) {
  const std::size_t slots = static_cast<std::size_t>(steps < Config::kDepth ? steps : Config::kDepth);
  return Config::kSumsBytes + whole_tokens_bytes<Config>(num_tokens, in_features) + slots * Config::kStepBytes;
}

}  // namespace heddle
