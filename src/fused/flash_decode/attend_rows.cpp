// FlashDecode::attend(): the rows of a step over keys that ranks divide.
#include <algorithm>

#include "base/dtype.h"
#include "base/error.h"
#include "base/trace.h"
#include "device/channel_calls.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/flash_decode/flash_decode_sm90.h"
#include "fused/flash_decode/partial.cuh"
#include "kernels/attention/attention_sm90.h"
#include "kernels/attention/attention_sums.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"

namespace heddle {

namespace {

// f(attention, first row) for at most `at_once` rows at a time, whose parts are `sums`.
template <class F>
void for_rounds(const AttentionParams& params, std::int64_t at_once, const AttentionSums& sums, const F& f) {
  AttentionParams round = params;
  round.sums = sums;
  for (std::int64_t first = 0; first < params.q.rows; first += at_once) {
    const std::int64_t count = std::min(at_once, params.q.rows - first);
    round.q = params.q.row_slice(first, count);
    round.y = params.y.row_slice(first, count);
    f(round, static_cast<int>(first));
  }
}

}  // namespace

AttentionSums FlashDecode::own_parts() const {
  const TileSlots& slots = tiles_.slots();
  return {.first = slots.arriving(tiles_.peers().rank, 0), .bytes_apart = slots.tile_bytes};
}

void FlashDecode::require_rows(const AttentionParams& params, const Lane& lane) const {
  require_attention(params, lane);
  const PagedKv& kv = params.kv;
  const Peers& peers = tiles_.peers();
  require(params.num_heads == limits_.num_heads && kv.num_kv_heads == limits_.num_kv_heads &&
              kv.head_dim == limits_.head_dim,
          "flash_decode: {} heads on {} KV heads of {}; made for {}, {} and {}", params.num_heads, kv.num_kv_heads,
          kv.head_dim, limits_.num_heads, limits_.num_kv_heads, limits_.head_dim);
  require(params.sum_columns() == limits_.sum_columns(), "flash_decode: value_dim is {}; made for {}",
          params.sum_columns(), limits_.sum_columns());
  require(kv.shard == KvShard{peers.rank, peers.size}, "flash_decode: the cache of rank {} of {}, at rank {} of {}",
          kv.shard.rank, kv.shard.ranks, peers.rank, peers.size);
}

void FlashDecode::attend_on_gpu(const AttentionParams& params, const Lane& lane) {
  if constexpr (kHaveCuda) {
    const DecodeExchange exchange{tiles_.slots(), tiles_.peers()};
    AttentionParams own = params;
    own.sums = own_parts();
    // push waits for every row, and sends those of sequences.
    const bool one_row_each = params.sequences.max_query_len == 1 && params.q.rows == params.sequences.num_sequences;
    if (one_row_each && params.q.rows <= limits_.max_sequences && push_decode_takes(own))
      return push_decode_sm90(own, exchange, lane);
    for_rounds(params, limits_.max_sequences, own.sums, [&](const AttentionParams& round, int first_row) {
      attention_sums_of_rows_sm90(round, first_row, lane);
      send_parts_sm90(static_cast<int>(round.q.rows) * limits_.num_kv_heads, exchange, lane.stream);
      merge_slots_sm90(round, exchange, lane);
    });
  }
}

void FlashDecode::attend_alone(const AttentionParams& params, const Lane& lane) {
  require_rows(params, lane);
  require(lane.stream.device().kind == DeviceKind::cuda, "flash_decode: attends alone on a GPU");
  if constexpr (kHaveCuda)
    for_rounds(params, limits_.max_sequences, own_parts(), [&](const AttentionParams& round, int first_row) {
      attention_sums_of_rows_sm90(round, first_row, lane);
      merge_parts_sm90(round, 0, 1, lane);
    });
}

void FlashDecode::attend(const AttentionParams& params, const RowShares& shares, const Lane& lane) {
  require_rows(params, lane);
  if (params.q.rows == 0 || recorded(params, lane)) return;
  if (lane.stream.device().kind == DeviceKind::cuda) {
    require(!shares.divides(params.q.rows), "flash_decode: ranks divide {} rows, on a GPU", params.q.rows);
    return attend_on_gpu(params, lane);
  }
  const std::int64_t rows = params.q.rows, at_once = limits_.max_sequences;
  for (std::int64_t first = 0; first < rows; first += at_once) {
    const std::int64_t count = std::min(at_once, rows - first);
    lane.stream.enqueue([this, params, shares, first, count](ThreadPool& pool) {
      begin_round(params, shares, first, count);
      attend_round(pool);
    });
    {
      const Span span(lane.stream, "barrier");
      lane.stream.enqueue([this](ThreadPool&) { round_.has_arrived = await_round(); });
    }
    const Span span(lane.stream, "combine");
    lane.stream.enqueue([this](ThreadPool& pool) { merge_round(pool); });
  }
}

void FlashDecode::begin_round(const AttentionParams& params, const RowShares& shares, std::int64_t first_row,
                              std::int64_t num_rows) {
  const PagedSequences& all = params.sequences;
  const auto first = static_cast<std::int32_t>(first_row), end = static_cast<std::int32_t>(first_row + num_rows);
  int sequence = 0;
  while (all.query_start[sequence + 1] <= first) ++sequence;
  const std::int32_t* const pages = all.pages(sequence);
  round_.query_start.assign(1, 0);
  round_.context_len.clear();
  for (; sequence < all.num_sequences && all.query_start[sequence] < end; ++sequence) {
    const std::int32_t last = std::min(all.query_start[sequence + 1], end);
    round_.query_start.push_back(last - first);
    round_.context_len.push_back(all.context_len[sequence] - (all.query_start[sequence + 1] - last));
  }
  round_.shares = shares;
  round_.first_row = first_row;
  round_.all_rows = params.q.rows;
  round_.params = params;
  round_.params.q = params.q.row_slice(first_row, num_rows);
  round_.params.y = params.y.row_slice(first_row, num_rows);
  round_.params.sequences = {.query_start = round_.query_start.data(),
                             .context_len = round_.context_len.data(),
                             .page_table = pages,
                             .num_sequences = static_cast<int>(round_.context_len.size()),
                             .page_table_stride = all.page_table_stride,
                             .max_query_len = all.max_query_len};
  round_.params.sums = own_parts();
}

bool FlashDecode::wants(int rank, int unit) const {
  if (!round_.shares.divides(round_.all_rows)) return true;
  return round_.shares.owner(round_.all_rows, round_.first_row + unit / limits_.num_kv_heads) == rank;
}

bool FlashDecode::claim_round() const {
  const Peers& peers = tiles_.peers();
  for (int step = 1; step < peers.size; ++step) {
    const int to = (peers.rank + step) % peers.size;
    for (int unit = 0; unit < units_of_round(); ++unit)
      if (wants(to, unit) && !claim(HostThread{}, peers, to, tiles_.slots().channel, unit, "decode: credit"))
        return false;
  }
  return true;
}

void FlashDecode::send_wanted(int unit) const {
  const Peers& peers = tiles_.peers();
  for (int step = 1; step < peers.size; ++step) {
    const int to = (peers.rank + step) % peers.size;
    if (wants(to, unit)) send_to(to, unit);
  }
}

bool FlashDecode::await_round() const {
  const Peers& peers = tiles_.peers();
  for (int rank = 0; rank < peers.size; ++rank)
    for (int unit = 0; unit < units_of_round(); ++unit)
      if (rank != peers.rank && wants(peers.rank, unit) &&
          !await_full(HostThread{}, peers, rank, tiles_.slots().channel, unit, "decode: parts"))
        return false;
  return true;
}

// Slots are claimed before, because a piece of a loop may not wait; a fill does not.
void FlashDecode::attend_round(ThreadPool& pool) const {
  if (!claim_round()) return;
  attend_now(round_.params, pool, [&](const AttendedUnits& units) {
    for (std::int64_t token = units.first_token; token < units.first_token + units.num_tokens; ++token)
      send_wanted(static_cast<int>(token) * limits_.num_kv_heads + units.kv_head);
  });
}

void FlashDecode::merge_row(std::int64_t row, int kv_head) const {
  const DecodeUnit shape{.heads = limits_.num_heads / limits_.num_kv_heads, .value_dim = limits_.sum_columns()};
  const TileSlots& slots = tiles_.slots();
  const Tensor& y = round_.params.y;
  const int unit = static_cast<int>(row) * limits_.num_kv_heads + kv_head;
  for (int head = 0; head < shape.heads; ++head) {
    float merged[kMaxHeadDim] = {};
    MergedSums sums;
    for (int rank = 0; rank < tiles_.peers().size; ++rank)
      merge_head(shape, head, reinterpret_cast<const float*>(slots.arriving(rank, unit)), sums, merged);
    finish_head(shape, sums, merged);
    const std::int64_t column = (std::int64_t{kv_head} * shape.heads + head) * limits_.head_dim;
    convert(merged, DType::float32,
            static_cast<std::byte*>(y.data) + static_cast<std::size_t>(row * y.row_stride + column) * size_of(y.dtype),
            y.dtype, static_cast<std::size_t>(shape.value_dim));
  }
}

void FlashDecode::merge_round(ThreadPool& pool) const {
  if (!round_.has_arrived) return;
  const Peers& peers = tiles_.peers();
  const int units = units_of_round();
  const std::int64_t work = std::int64_t{peers.size} * limits_.num_heads / limits_.num_kv_heads * limits_.sum_columns();
  pool.parallel_for(units, rows_per_piece(work), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit)
      if (wants(peers.rank, static_cast<int>(unit)))
        merge_row(unit / limits_.num_kv_heads, static_cast<int>(unit % limits_.num_kv_heads));
  });
  for (int unit = 0; unit < units; ++unit)
    for (int rank = 0; rank < peers.size; ++rank)
      if (rank != peers.rank && wants(peers.rank, unit))
        give_back(HostThread{}, peers, rank, tiles_.slots().channel, unit, 1);
}

}  // namespace heddle
