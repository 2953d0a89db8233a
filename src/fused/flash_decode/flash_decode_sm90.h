// flash_decode on a GPU, without CUDA's headers. flash_decode.h has what it does; its arguments are checked there.
// Defined only in builds with CUDA.
#pragma once

#include <cstddef>

#include "base/lane.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/tile_channel.h"
#include "kernels/attention/attention.h"

namespace heddle {

// How the parts of a call reach other ranks.
struct DecodeExchange {
  TileSlots slots;
  Peers peers;
};

// Below, `attention` has sums, which lie in this rank's slots: a unit for each row of y and KV head.

// Whether push_decode_sm90() takes this attention, of sequences with one new token each.
bool push_decode_takes(const AttentionParams& attention);
// One kernel whose blocks are all resident. It computes the sums, sends each row to all ranks once it is complete, and
// merges all ranks' parts into y.
void push_decode_sm90(const AttentionParams& attention, const DecodeExchange& exchange, const Lane& lane);
// Sends the parts that lie in this rank's slots to all ranks, this one too.
void send_parts_sm90(int units, const DecodeExchange& exchange, Stream& stream);
// Waits for the parts of all ranks.
void await_parts_sm90(int units, const DecodeExchange& exchange, Stream& stream);
// y from the parts of all ranks, each of which it waits for.
void merge_slots_sm90(const AttentionParams& attention, const DecodeExchange& exchange, const Lane& lane);
// y from parts that are there: attention.sums are the first rank's, of rank r `of_rank` bytes behind those of rank r - 1.
void merge_parts_sm90(const AttentionParams& attention, std::size_t of_rank, int ranks, const Lane& lane);

}  // namespace heddle
