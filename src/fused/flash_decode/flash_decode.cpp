#include "fused/flash_decode/flash_decode.h"

#include <algorithm>
#include <utility>

#include "base/dtype_switch.h"
#include "base/error.h"
#include "base/trace.h"
#include "device/channel_calls.h"
#include "fused/flash_decode/flash_decode_sm90.h"
#include "fused/flash_decode/partial.cuh"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_sums.h"

namespace heddle {
namespace {

constexpr const char* kFlashDecode = "flash_decode";

DecodeUnit unit_of(const FlashDecodeParams& params) {
  return {.heads = params.num_heads / params.kv.num_kv_heads, .value_dim = params.sum_columns()};
}

TileChannelShape channel_shape(const FlashDecodeLimits& limits) {
  require(
      limits.max_sequences >= 1 && limits.num_kv_heads >= 1 && limits.num_heads >= 1 &&
          limits.num_heads % limits.num_kv_heads == 0 && limits.head_dim >= 1 && limits.head_dim <= kMaxHeadDim,
      "flash_decode: {} sequences, {} heads on {} KV heads of {}; heads are a multiple of the KV heads, and head_dim "
      "is at most {}",
      limits.max_sequences, limits.num_heads, limits.num_kv_heads, limits.head_dim, kMaxHeadDim);
  require(limits.value_dim >= 0 && limits.value_dim <= limits.head_dim,
          "flash_decode: value_dim is {}, expected 0 to head_dim, {}", limits.value_dim, limits.head_dim);
  const DecodeUnit unit{limits.num_heads / limits.num_kv_heads, limits.sum_columns()};
  return {.tiles_per_rank = limits.max_sequences * limits.num_kv_heads, .tile_bytes = unit.floats() * sizeof(float)};
}

bool is_on_gpu(const Lane& lane) {
  return lane.stream.device().kind == DeviceKind::cuda;
}

void require_decode(const FlashDecodeParams& params) {
  const PagedKv& kv = params.kv;
  const std::int64_t rows = params.sequences.num_sequences, columns = std::int64_t{params.num_heads} * kv.head_dim;
  require(kv.num_kv_heads >= 1 && kv.page_size >= 1 && kv.head_dim >= 1 && kv.head_dim <= kMaxHeadDim &&
              params.num_heads >= 1 && params.num_heads % kv.num_kv_heads == 0,
          "flash_decode: {} heads on {} KV heads of {}, in pages of {}", params.num_heads, kv.num_kv_heads, kv.head_dim,
          kv.page_size);
  require(params.value_dim >= 0 && params.value_dim <= kv.head_dim,
          "flash_decode: value_dim is {}, expected 0 to head_dim, {}", params.value_dim, kv.head_dim);
  for (const Tensor* tensor : {&params.q, &params.y})
    require(tensor->rows == rows && tensor->columns == columns && tensor->row_stride >= columns &&
                tensor->dtype == DType::float32 && (tensor->data != nullptr || rows == 0),
            "flash_decode: {} is [{}, {}] of {}, expected [{}, {}] of float32", tensor == &params.q ? "q" : "y",
            tensor->rows, tensor->columns, name_of(tensor->dtype), rows, columns);
  require(rows == 0 || params.sequences.context_len != nullptr, "flash_decode: context_len is null");
}

// On a GPU a part is a unit's, and a unit one new token's: others would wait for parts that never come.
void require_one_query_each(const FlashDecodeParams& params) {
  require(params.sequences.max_query_len == 1, "flash_decode: max_query_len is {}, expected 1",
          params.sequences.max_query_len);
}

std::size_t unit_bytes(const FlashDecodeParams& params) {
  return unit_of(params).floats() * sizeof(float);
}

// What leaves this rank's parts in `sums`.
AttentionParams attention_of(const FlashDecodeParams& params, const AttentionSums& sums) {
  return {.q = params.q,
          .y = params.y,
          .kv = params.kv,
          .sequences = params.sequences,
          .num_heads = params.num_heads,
          .scale = params.scale,
          .value_dim = params.value_dim,
          .older_keys = params.older_keys,
          .scratch = params.scratch,
          .plan = params.plan,
          .sums = sums};
}

// The part of one unit: sequence unit / num_kv_heads.
void compute_unit(const FlashDecodeParams& params, int unit, float* part) {
  const int sequence = unit / params.kv.num_kv_heads, kv_head = unit % params.kv.num_kv_heads;
  const DecodeUnit shape = unit_of(params);
  const float* const q = static_cast<const float*>(params.q.data) + sequence * params.q.row_stride +
                         static_cast<std::ptrdiff_t>(kv_head) * shape.heads * params.kv.head_dim;
  const int count = params.sequences.context_len[sequence];
  const DecodeKeys keys{params.kv, count == 0 ? nullptr : params.sequences.pages(sequence), count};
  with_element(params.kv.dtype,
               [&]<class T>() { partial_attention<T>(HostThread{}, shape, q, kv_head, keys, params.scale, part); });
}

// Merges the parts of one unit, part(rank), into y. `ready(rank)` comes before a part is read; false ends the merge.
template <class Part, class Ready>
bool merge_unit(const FlashDecodeParams& params, int unit, int ranks, const Part& part, const Ready& ready) {
  const DecodeUnit shape = unit_of(params);
  const int sequence = unit / params.kv.num_kv_heads, kv_head = unit % params.kv.num_kv_heads;
  float* const y = static_cast<float*>(params.y.data) + sequence * params.y.row_stride +
                   static_cast<std::ptrdiff_t>(kv_head) * shape.heads * params.kv.head_dim;
  const auto y_of = [&](int head) { return y + static_cast<std::ptrdiff_t>(head) * params.kv.head_dim; };
  constexpr int kHeadsAtOnce = 64;
  for (int first = 0; first < shape.heads; first += kHeadsAtOnce) {
    const int last = std::min(shape.heads, first + kHeadsAtOnce);
    MergedSums sums[kHeadsAtOnce];
    for (int head = first; head < last; ++head) std::fill_n(y_of(head), shape.value_dim, 0.0f);
    for (int rank = 0; rank < ranks; ++rank) {
      if (first == 0 && !ready(rank)) return false;
      for (int head = first; head < last; ++head) merge_head(shape, head, part(rank), sums[head - first], y_of(head));
    }
    for (int head = first; head < last; ++head) finish_head(shape, sums[head - first], y_of(head));
  }
  return true;
}

}  // namespace

std::string_view name_of(DecodeVariant variant) {
  switch (variant) {
    case DecodeVariant::all_gather:
      return "all-gather";
    case DecodeVariant::waits:
      return "waits";
    case DecodeVariant::push:
      return "push";
  }
  return "?";
}

std::size_t decode_part_floats(const FlashDecodeParams& params) {
  return static_cast<std::size_t>(params.sequences.num_sequences) * static_cast<std::size_t>(params.kv.num_kv_heads) *
         unit_of(params).floats();
}

void partial_decode(const FlashDecodeParams& params, float* parts, const Lane& lane) {
  require_decode(params);
  const Span span(lane.stream, "attend");
  if (is_on_gpu(lane)) {
    if (params.sequences.num_sequences > 0)
      attention(attention_of(params, {reinterpret_cast<std::byte*>(parts), unit_bytes(params)}), lane);
    return;
  }
  lane.stream.enqueue([params, parts](ThreadPool& pool) {
    pool.parallel_for(params.sequences.num_sequences * params.kv.num_kv_heads, 1,
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t unit = begin; unit < end; ++unit)
                          compute_unit(params, static_cast<int>(unit),
                                       parts + static_cast<std::size_t>(unit) * unit_of(params).floats());
                      });
  });
}

void combine_decode(const FlashDecodeParams& params, const float* all_parts, int ranks, const Lane& lane) {
  require_decode(params);
  const Span span(lane.stream, "combine");
  if (is_on_gpu(lane)) {
    if (params.sequences.num_sequences == 0 || lane.dry_run != nullptr) return;
    if constexpr (kHaveCuda) {
      auto* const first = reinterpret_cast<std::byte*>(const_cast<float*>(all_parts));  // which are only read
      merge_parts_sm90(attention_of(params, {first, unit_bytes(params)}), decode_part_floats(params) * sizeof(float),
                       ranks, lane);
    }
    return;
  }
  lane.stream.enqueue([params, all_parts, ranks](ThreadPool&) {
    const std::size_t of_rank = decode_part_floats(params), of_unit = unit_of(params).floats();
    for (int unit = 0; unit < params.sequences.num_sequences * params.kv.num_kv_heads; ++unit) {
      const auto part = [&](int rank) {
        return all_parts + static_cast<std::size_t>(rank) * of_rank + static_cast<std::size_t>(unit) * of_unit;
      };
      merge_unit(params, unit, ranks, part, [](int) { return true; });
    }
  });
}

std::size_t FlashDecode::heap_bytes(int world_size, const FlashDecodeLimits& limits) {
  return TileChannel::heap_bytes(world_size, channel_shape(limits));
}

FlashDecode::FlashDecode(Fabric& fabric, Ranks team, const FlashDecodeLimits& limits)
    : limits_(limits),
      tiles_(fabric, std::move(team), channel_shape(limits), kFlashDecode),
      ready_(fabric.device()),
      sent_(fabric.device()) {}

void FlashDecode::enqueue_on_gpu(const FlashDecodeParams& params, DecodeVariant variant, const Lane& lane,
                                 Stream& transfers) {
  if constexpr (kHaveCuda) {
    const DecodeExchange exchange{tiles_.slots(), tiles_.peers()};
    const int units = units_of(params);
    require_one_query_each(params);
    const AttentionParams own = attention_of(params, own_parts());
    require_attention(own, lane);
    if (variant == DecodeVariant::push && push_decode_takes(own)) return push_decode_sm90(own, exchange, lane);
    attention(own, lane);
    // With `waits` the transfer's few blocks run beside those that wait for them.
    Lane merging = lane;
    merging.num_sms = std::max(1, lane.num_sms - 1);
    if (variant != DecodeVariant::waits) {
      send_parts_sm90(units, exchange, lane.stream);
      if (variant == DecodeVariant::all_gather) await_parts_sm90(units, exchange, lane.stream);
      return merge_slots_sm90(own, exchange, merging);
    }
    ready_.record(lane.stream);
    transfers.wait(ready_);
    send_parts_sm90(units, exchange, transfers);
    sent_.record(transfers);
    merge_slots_sm90(own, exchange, merging);
    lane.stream.wait(sent_);
  }
}

bool FlashDecode::claim_all(int units) const {
  const Peers& peers = tiles_.peers();
  for (int step = 1; step < peers.size; ++step) {
    const int to = (peers.rank + step) % peers.size;
    for (int unit = 0; unit < units; ++unit)
      if (!claim(HostThread{}, peers, to, tiles_.slots().channel, unit, "decode: credit")) return false;
  }
  return true;
}

void FlashDecode::send(int unit) const {
  const Peers& peers = tiles_.peers();
  for (int step = 1; step < peers.size; ++step) send_to((peers.rank + step) % peers.size, unit);
}

void FlashDecode::send_to(int rank, int unit) const {
  const Peers& peers = tiles_.peers();
  const TileSlots& slots = tiles_.slots();
  std::byte* const part = slots.arriving(peers.rank, unit);  // at every rank at the same place
  put(HostThread{}, peers, rank, part, part, slots.tile_bytes);
  fill(HostThread{}, peers, rank, slots.channel, unit);
}

// Slots are claimed before, because a piece of a loop may not wait; a fill does not.
void FlashDecode::compute(const FlashDecodeParams& params, ThreadPool& pool, bool send_each) const {
  pool.parallel_for(units_of(params), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const int unit = static_cast<int>(i);
      compute_unit(params, unit, reinterpret_cast<float*>(tiles_.slots().arriving(tiles_.peers().rank, unit)));
      if (send_each) send(unit);
    }
  });
}

bool FlashDecode::await_all(int units) const {
  const Peers& peers = tiles_.peers();
  for (int rank = 0; rank < peers.size; ++rank)
    for (int unit = 0; unit < units; ++unit)
      if (rank != peers.rank && !await_full(HostThread{}, peers, rank, tiles_.slots().channel, unit, "decode: parts"))
        return false;
  return true;
}

bool FlashDecode::merge(const FlashDecodeParams& params) const {
  const Peers& peers = tiles_.peers();
  const TileSlots& slots = tiles_.slots();
  for (int unit = 0; unit < units_of(params); ++unit) {
    const auto part = [&](int rank) { return reinterpret_cast<const float*>(slots.arriving(rank, unit)); };
    const auto ready = [&](int rank) {
      return rank == peers.rank || await_full(HostThread{}, peers, rank, slots.channel, unit, "decode: part");
    };
    if (!merge_unit(params, unit, peers.size, part, ready)) return false;
    for (int rank = 0; rank < peers.size; ++rank)
      if (rank != peers.rank) give_back(HostThread{}, peers, rank, slots.channel, unit, 1);
  }
  return true;
}

void FlashDecode::operator()(const FlashDecodeParams& params, DecodeVariant variant, const Lane& lane,
                             Stream& transfers) {
  require_decode(params);
  const PagedKv& kv = params.kv;
  require(params.num_heads == limits_.num_heads && kv.num_kv_heads == limits_.num_kv_heads &&
              kv.head_dim == limits_.head_dim && params.sequences.num_sequences <= limits_.max_sequences,
          "flash_decode: {} sequences, {} heads on {} KV heads of {}; made for {}, {}, {} and {}",
          params.sequences.num_sequences, params.num_heads, kv.num_kv_heads, kv.head_dim, limits_.max_sequences,
          limits_.num_heads, limits_.num_kv_heads, limits_.head_dim);
  require(params.sum_columns() == limits_.sum_columns(), "flash_decode: value_dim is {}; made for {}",
          params.sum_columns(), limits_.sum_columns());
  require(transfers.device() == lane.stream.device() && &transfers != &lane.stream,
          "flash_decode: needs a second stream of the same device");
  if (params.sequences.num_sequences == 0 || lane.dry_run != nullptr) return;
  if (is_on_gpu(lane)) return enqueue_on_gpu(params, variant, lane, transfers);
  const int units = units_of(params);
  const bool push = variant == DecodeVariant::push;
  {
    const Span span(lane.stream, "attend");
    lane.stream.enqueue([this, params, push, units](ThreadPool& pool) {
      if (!push || claim_all(units)) compute(params, pool, push);
    });
  }
  const auto gather = [this, units](Stream& stream) {
    const Span span(stream, "transfer");
    stream.enqueue([this, units](ThreadPool&) {
      if (!claim_all(units)) return;
      for (int unit = 0; unit < units; ++unit) send(unit);
    });
  };
  if (variant == DecodeVariant::waits) {
    ready_.record(lane.stream);
    transfers.wait(ready_);
    gather(transfers);
    sent_.record(transfers);
  } else if (variant == DecodeVariant::all_gather) {
    gather(lane.stream);
    const Span span(lane.stream, "barrier");
    lane.stream.enqueue([this, units](ThreadPool&) { static_cast<void>(await_all(units)); });
  }
  {
    const Span span(lane.stream, "combine");
    lane.stream.enqueue([this, params](ThreadPool&) { static_cast<void>(merge(params)); });
  }
  if (variant == DecodeVariant::waits) lane.stream.wait(sent_);
}

}  // namespace heddle
