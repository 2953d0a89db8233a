// flash_decode on a GPU, without CUDA's headers. flash_decode.h has what it does; its arguments are checked there.
// Defined only in builds with CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/lane.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/tile_channel.h"

namespace heddle {

// Parts (o, m, l) of the units of a call. Part u begins `bytes_apart` behind part u - 1.
struct DecodeParts {
  std::byte* first;
  std::size_t bytes_apart;
};

// Scratch of a call: each unit's keys are divided among blocks.
struct DecodeScratch {
  float* splits;            // [units, splits] parts
  std::uint32_t* finished;  // [units], zero before and after: splits that are done
  int splits_per_unit;
};
std::size_t decode_scratch_bytes(const FlashDecodeParams& params, const Lane& lane);
// The same with `finished` in memory of the caller's, of as many words as units, and splits at the lane's workspace.
// Throws InvalidArgument where it is too small.
DecodeScratch decode_scratch(const FlashDecodeParams& params, std::uint32_t* finished, const Lane& lane);

// How the parts of a call reach other ranks.
struct DecodeExchange {
  TileSlots slots;
  Peers peers;
};

// This rank's parts.
void decode_parts_sm90(const FlashDecodeParams& params, const DecodeParts& parts, const DecodeScratch& scratch,
                       const Lane& lane);
// The same, and each part to all ranks when it is there, and y from all ranks' parts: one kernel, whose blocks are
// resident.
void push_decode_sm90(const FlashDecodeParams& params, const DecodeExchange& exchange, const DecodeScratch& scratch,
                      const Lane& lane);
// Sends the parts that lie in this rank's slots to the other ranks.
void send_parts_sm90(int units, const DecodeExchange& exchange, Stream& stream);
// Waits for the parts of all other ranks.
void await_parts_sm90(int units, const DecodeExchange& exchange, Stream& stream);
// y from the parts of all ranks, each of which it waits for.
void merge_slots_sm90(const FlashDecodeParams& params, const DecodeExchange& exchange, const Lane& lane);
// y from parts that are there: of rank r `of_rank` bytes behind those of rank r - 1.
void merge_parts_sm90(const FlashDecodeParams& params, const DecodeParts& parts, std::size_t of_rank, int ranks,
                      const Lane& lane);

}  // namespace heddle
