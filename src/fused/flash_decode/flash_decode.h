// Distributed flash decode: attention of one new token per sequence, with the keys and values of each sequence divided
// over the ranks of a team ("Eliminating Multi-GPU Performance Taxes", section 4.2 and Alg. 4). Each rank computes the
// part (o, m, l) of its own keys; all ranks get all parts and merge them:
//
//   m = max_r m_r,  l = sum_r l_r exp(m_r - m),  y = sum_r o_r exp(m_r - m) / l,   in rank order and float32,
//
// so all ranks have equal bits. A rank without keys of a sequence adds nothing to it.
//
// Three of the paper's four stages are here; the first, bsp, is partial_decode, an all-gather and combine_decode:
//   all_gather  a transfer of our own that returns when all parts are there, then the merge
//   waits       the same transfer on another stream; the merge waits for each part by itself
//   push        each part is pushed to all ranks as soon as it is computed; the merge waits as before
// All give the same bits.
//
// attend() does the same for any rows of a step, a prompt's chunk among them, as push. So a rank's cache holds a part of
// each sequence (KvShard).
//
// On a GPU the parts are those of attention(). push is one kernel where attention's decode kernel takes the shapes (a cache
// of 16 bits, its head sizes, at most 64 heads of a KV head); otherwise, as for latent attention, attention, a transfer
// and the merge. attend() is
// that kernel in steps of one new token a sequence without a window; other steps are attention's sums of some rows
// (attention_sums_of_rows_sm90), their transfer and the merge, round by round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/thread_pool.h"
#include "fabric/fabric.h"
#include "fused/row_shares.h"
#include "fused/tile_channel.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

enum class DecodeVariant : std::uint8_t { all_gather, waits, push };
std::string_view name_of(DecodeVariant variant);  // "all-gather", "waits", "push"

struct FlashDecodeParams {
  Tensor q;                  // [num_sequences, num_heads * head_dim], float32; the same on every rank
  Tensor y;                  // likewise; does not overlap q
  PagedKv kv;                // this rank's keys, already rotated
  PagedSequences sequences;  // context_len counts this rank's keys, and may be 0; query_start counts rows, on a GPU
  int num_heads = 0;         // a multiple of kv.num_kv_heads
  float scale = 0;           // of the scores
  int value_dim = 0;         // as attention()'s: of latent attention, whose values are the first part of its keys
  OlderKeys older_keys = OlderKeys::in_flight;
  // On a GPU as those of attention(); max_query_len is 1.
  void* scratch = nullptr;
  const void* plan = nullptr;

  int sum_columns() const { return value_dim > 0 ? value_dim : kv.head_dim; }
};

// Floats of the parts of one rank: [num_sequences, num_kv_heads] units of (o, m, l), as in partial.cuh.
std::size_t decode_part_floats(const FlashDecodeParams& params);

// Stage one: this rank's parts. Enqueues. Throws InvalidArgument unless shapes fit.
void partial_decode(const FlashDecodeParams& params, float* parts, const Lane& lane);
// The last stage: y from all ranks' parts, [ranks, decode_part_floats], in rank order.
void combine_decode(const FlashDecodeParams& params, const float* all_parts, int ranks, const Lane& lane);

struct FlashDecodeLimits {
  int max_sequences = 0;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int value_dim = 0;  // of what calls want; 0: all of head_dim

  int sum_columns() const { return value_dim > 0 ? value_dim : head_dim; }
};

// One for each rank and team; owns the symmetric memory. The ranks of a team make the same calls in the same order; calls
// follow each other without a barrier, in any variants. It outlives the work that is enqueued on it.
class FlashDecode {
 public:
  // Collective over the fabric's world, as TileChannel; every rank gives the same limits. Throws InvalidArgument unless
  // they are positive and fit.
  FlashDecode(Fabric& fabric, Ranks team, const FlashDecodeLimits& limits);

  static std::size_t heap_bytes(int world_size, const FlashDecodeLimits& limits);

  // Enqueues attention and merge on the lane, and the transfer of `waits` on `transfers`, another stream of the same
  // device. Ordered as AllGatherLinear's. Throws InvalidArgument unless params fit the limits. A rank that stops is named
  // by Fabric::synchronize (Timeout); y is then undefined.
  void operator()(const FlashDecodeParams& params, DecodeVariant variant, const Lane& lane, Stream& transfers);

  // Attention as attention() takes it, over a cache of which each rank has a shard: kv.shard is this rank's, q the same on
  // every rank, and y what the keys of all give: all rows on every rank, or where `shares` divides this many rows each rank's
  // own share. This rank's sums of a token and a KV head go to the ranks that want the row as soon as they are complete;
  // then those merge all, in rank order. Rows go in rounds of limits.max_sequences. On the CPU the bits of a row depend on
  // its sequence and on the number of ranks alone. On a GPU every rank wants all rows. Throws InvalidArgument as
  // require_attention, unless heads and shard are those that this was made for, and on a GPU where `shares` divides rows.
  void attend(const AttentionParams& params, const RowShares& shares, const Lane& lane);

  // On a GPU: attend() over this rank's keys alone, for steps in which nothing may cross ranks (ModelRank::alone).
  void attend_alone(const AttentionParams& params, const Lane& lane);

 private:
  // The rows of a round of attend(), as attention of their own.
  struct Round {
    AttentionParams params;
    std::vector<std::int32_t> query_start, context_len;
    RowShares shares;
    std::int64_t first_row = 0, all_rows = 0;
    bool has_arrived = false;  // the other ranks' parts; where a wait has given up, they may still be written
  };
  void begin_round(const AttentionParams& params, const RowShares& shares, std::int64_t first_row,
                   std::int64_t num_rows);
  // Whether `rank` merges the unit. Units of a row are consecutive.
  bool wants(int rank, int unit) const;
  bool claim_round() const;
  void send_wanted(int unit) const;
  bool await_round() const;
  int units_of_round() const { return static_cast<int>(round_.params.q.rows) * limits_.num_kv_heads; }
  void attend_round(ThreadPool& pool) const;
  void merge_round(ThreadPool& pool) const;
  void merge_row(std::int64_t row, int kv_head) const;

  void require_rows(const AttentionParams& params, const Lane& lane) const;
  void attend_on_gpu(const AttentionParams& params, const Lane& lane);
  AttentionSums own_parts() const;
  void enqueue_on_gpu(const FlashDecodeParams& params, DecodeVariant variant, const Lane& lane, Stream& transfers);
  // The parts of a call, on a thread of the CPU. False: a wait has given up.
  bool claim_all(int units) const;
  void send(int unit) const;
  void send_to(int rank, int unit) const;
  void compute(const FlashDecodeParams& params, ThreadPool& pool, bool send_each) const;
  bool await_all(int units) const;
  bool merge(const FlashDecodeParams& params) const;
  int units_of(const FlashDecodeParams& params) const { return params.sequences.num_sequences * limits_.num_kv_heads; }

  FlashDecodeLimits limits_;
  TileChannel tiles_;
  Event ready_, sent_;
  Round round_;  // that the stream is at
};

}  // namespace heddle
