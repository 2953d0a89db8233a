#include "kernels/attention/expanded_attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/attention_part.h"
#include "kernels/attention/expanded_attention_sm90.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/attention/expanded_attention.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/attention/attention-inl.h"
#include "kernels/attention/attention_loop-inl.h"

#ifndef HEDDLE_KERNELS_EXPANDED_TILE
#define HEDDLE_KERNELS_EXPANDED_TILE
namespace heddle {

// Consecutive tokens of one head, which a thread computes together. Below here the params have one sequence.
struct ExpandedTile {
  int head;
  int first_token;
  int num_tokens;
};

// Where a tile's state lies: element `row` of m and l, and the row's o.
struct ExpandedState {
  std::int64_t o, m, l;

  ExpandedState(const ExpandedAttentionParams& params, int head, std::int64_t token) {
    const std::int64_t rows = params.q.rows * params.num_heads, row = head * params.q.rows + token;
    o = row * params.value_dim;
    m = rows * params.value_dim + row;
    l = m + rows;
  }
};

}  // namespace heddle
#endif

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

using ExpandedProducts = WidenedProducts<float>;

// The first element of a row's columns of one head.
HWY_INLINE float* head_of(const Tensor& rows, std::int64_t row, int head, int head_columns) {
  return static_cast<float*>(rows.data) + row * rows.row_stride + std::int64_t{head} * head_columns;
}

HWY_INLINE void take_key(const ExpandedAttentionParams& params, const float* own, std::int64_t row, int nope_dim,
                         int width, float* key) {
  const int rope_dim = static_cast<int>(params.shared_keys.columns);
  const std::int64_t at = row * params.shared_keys.row_stride;
  widen(own, nope_dim, nope_dim, key);
  if (params.shared_keys.dtype == DType::bfloat16)
    widen(static_cast<const bfloat16*>(params.shared_keys.data) + at, rope_dim, width - nope_dim, key + nope_dim);
  else
    widen(static_cast<const float*>(params.shared_keys.data) + at, rope_dim, width - nope_dim, key + nope_dim);
}

// Adds the piece's keys and values to the tile's rows.
void add_keys(const ExpandedAttentionParams& params, const ExpandedTile& tile, Scratch& scratch) {
  const int key_dim = static_cast<int>(params.q.columns) / params.num_heads;
  const int nope_dim = key_dim - static_cast<int>(params.shared_keys.columns);
  const int key_width = padded(key_dim), value_width = padded(params.value_dim), num_rows = tile.num_tokens;
  const int first_position = params.sequences[0].first_query + tile.first_token,
            num_keys = static_cast<int>(params.keys_values.rows);
  for (int block = 0; block < num_keys; block += kBlockKeys) {
    const int block_position = params.first_key + block;
    // The last row sees the most keys.
    const int block_end =
        visible_keys(first_position + num_rows - 1, 0, block_position, std::min(kBlockKeys, num_keys - block)).end;
    if (block_end == 0) break;
    const int whole_tiles = round_up(block_end, kTileKeys);
    const auto row_of = [&](int key) {
      return head_of(params.keys_values, block + key, tile.head, nope_dim + params.value_dim);
    };
    const Keys keys{.first = 0, .begin = 0, .end = block_end, .width = key_width, .columns = key_width};
    const Keys values{.first = 0, .begin = 0, .end = block_end, .width = value_width, .columns = value_width};
    // Values replace the keys in scratch.kv after the first group of rows. Later groups score against the transposed
    // keys; where rows are too few to transpose, there is one group.
    for (RowGroup rows{0, 0}; rows.begin < num_rows; rows.begin = rows.end) {
      rows.end = std::min(rows.begin + rows_of_group(key_dim, num_rows), num_rows);
      Visible seen[kMaxGroupRows];
      for (int row = rows.begin; row < rows.end; ++row)
        seen[rows.slot(row)] = visible_keys(first_position + row, 0, block_position, block_end);
      if (rows.begin == 0) {
        for (int key = 0; key < block_end; ++key)
          take_key(params, row_of(key), block + key, nope_dim, key_width, scratch.kv + key * key_width);
        ExpandedProducts::prepare_keys(scratch, keys, whole_tiles);
      }
      ExpandedProducts::score(scratch, rows, keys, whole_tiles);
      weigh_group<ExpandedProducts>(scratch, rows, seen, whole_tiles, value_width);
      if (rows.begin == 0)
        for (int key = 0; key < block_end; ++key)
          ExpandedProducts::take_key_or_value(scratch, key, row_of(key) + nope_dim, params.value_dim, value_width);
      ExpandedProducts::add_values(scratch, rows, values, seen);
    }
  }
}

void attend_expanded(const ExpandedAttentionParams& params, const ExpandedTile& tile) {
  const int key_dim = static_cast<int>(params.q.columns) / params.num_heads, value_dim = params.value_dim;
  const int key_width = padded(key_dim), value_width = padded(value_dim), num_rows = tile.num_tokens;
  Scratch scratch;
  for (int row = 0; row < num_rows; ++row) {
    const std::int64_t token = tile.first_token + row;
    ExpandedProducts::take_query(scratch, row, num_rows, head_of(params.q, token, tile.head, key_dim), params.scale,
                                 key_dim, key_width);
    float* const o = scratch.o + row * value_width;
    const ExpandedState state(params, tile.head, token);
    if (params.before == nullptr) {
      scratch.largest[row] = -std::numeric_limits<float>::infinity();
      scratch.sum[row] = 0;
      std::fill_n(o, value_width, 0.0f);
    } else {
      scratch.largest[row] = params.before[state.m];
      scratch.sum[row] = params.before[state.l];
      widen(params.before + state.o, value_dim, value_width, o);
    }
  }

  add_keys(params, tile, scratch);

  for (int row = 0; row < num_rows; ++row) {
    const std::int64_t token = tile.first_token + row;
    const float* o = scratch.o + row * value_width;
    if (params.after == nullptr) {
      divide_row(o, scratch.sum[row], head_of(params.y, token, tile.head, value_dim), value_dim);
      continue;
    }
    const ExpandedState state(params, tile.head, token);
    params.after[state.m] = scratch.largest[row];
    params.after[state.l] = scratch.sum[row];
    std::copy_n(o, value_dim, params.after + state.o);
  }
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {
namespace {

static_assert(kExpandedBlockKeys == kBlockKeys &&
              kKeyFloats >= kBlockKeys * kMaxExpandedDim);  // a block fits in scratch.kv

HWY_EXPORT(attend_expanded);

// The call's sequence i as a call of its own.
ExpandedAttentionParams of_sequence(const ExpandedAttentionParams& params, int i) {
  const ExpandedSequence& sequence = params.sequences[i];
  const std::int64_t first_token = params.sequences.first_token(i), first_key = params.sequences.first_key_row(i);
  ExpandedAttentionParams one = params;
  one.sequences = sequence;
  one.q = params.q.row_slice(first_token, sequence.num_tokens);
  if (params.after == nullptr) one.y = params.y.row_slice(first_token, sequence.num_tokens);
  one.keys_values = params.keys_values.row_slice(first_key, sequence.num_keys);
  one.shared_keys = params.shared_keys.row_slice(first_key, sequence.num_keys);
  return one;
}

void expanded_attention_cpu(const ExpandedAttentionParams& params, ThreadPool& pool) {
  const auto num_tokens = static_cast<int>(params.q.rows),
             key_dim = static_cast<int>(params.q.columns) / params.num_heads;
  const int rows = std::min(max_rows(std::max(key_dim, params.value_dim)), kMaxGroupRows);
  const int tiles = ceil_div(num_tokens, rows);
  const std::int64_t work = std::int64_t{rows} * (key_dim + params.value_dim) * params.keys_values.rows;
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_expanded);
  pool.parallel_for(std::int64_t{tiles} * params.num_heads, rows_per_piece(work),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        // Late tokens see the most keys and come first.
                        const int first = (tiles - 1 - static_cast<int>(i / params.num_heads)) * rows;
                        attend(params, {.head = static_cast<int>(i % params.num_heads),
                                        .first_token = first,
                                        .num_tokens = std::min(rows, num_tokens - first)});
                      }
                    });
}

}  // namespace

std::string why_not_expanded(const ExpandedHead& head, DType dtype, Device device) {
  const int key_dim = head.nope_dim + head.rope_dim;
  if (device.kind == DeviceKind::cuda) {
    constexpr ExpandedHead kTaken = kExpandedHeadSm90;
    if (head != kTaken)
      return fmt::format("keys of {} + {} elements and values of {}, expected {} + {} and {}", head.nope_dim,
                         head.rope_dim, head.value_dim, kTaken.nope_dim, kTaken.rope_dim, kTaken.value_dim);
    if (dtype == DType::float32) return "q is float32, expected bfloat16 or float16";
    return {};
  }
  if (dtype != DType::float32) return fmt::format("q is {}, expected float32 on the CPU", name_of(dtype));
  if (head.nope_dim <= 0 || key_dim > kMaxExpandedDim)
    return fmt::format("keys of {} elements, {} of them shared; up to {} are supported, and not all shared", key_dim,
                       head.rope_dim, kMaxExpandedDim);
  if (head.value_dim <= 0 || head.value_dim > kMaxExpandedDim)
    return fmt::format("value_dim is {}, expected 1 to {}", head.value_dim, kMaxExpandedDim);
  return {};
}

void expanded_attention(const ExpandedAttentionParams& params, const Lane& lane) {
  const Tensor &q = params.q, &shared = params.shared_keys;
  const int heads = params.num_heads;
  require(heads > 0 && q.columns % heads == 0, "expanded_attention: q has {} columns for {} heads", q.columns, heads);
  const ExpandedHead head{.nope_dim = static_cast<int>(q.columns / heads - shared.columns),
                          .rope_dim = static_cast<int>(shared.columns),
                          .value_dim = params.value_dim};
  const Device device = lane.stream.device();
  const std::string why_not = why_not_expanded(head, q.dtype, device);
  require(why_not.empty(), "expanded_attention: {}", why_not);
  require(params.first_key >= 0 && params.first_key % kExpandedBlockKeys == 0,
          "expanded_attention: the first key is at position {}, expected a multiple of {}", params.first_key,
          kExpandedBlockKeys);
  const ExpandedSequences& sequences = params.sequences;
  require(sequences.count <= 1 || (params.before == nullptr && params.after == nullptr),
          "expanded_attention: {} sequences with a state, expected one", sequences.count);
  for (int i = 0; i < sequences.count; ++i) {
    const int first_query = sequences[i].first_query;
    require(first_query >= 0 && sequences[i].num_tokens >= 0 && sequences[i].num_keys >= 0,
            "expanded_attention: sequence {} has {} tokens from position {} on and {} keys", i, sequences[i].num_tokens,
            first_query, sequences[i].num_keys);
    require(params.before != nullptr || params.first_key <= first_query,
            "expanded_attention: without a state, and the first key at position {} behind a query at {}",
            params.first_key, first_query);
  }
  const auto require_rows = [&](const Tensor& rows, std::int64_t count, std::int64_t columns, const char* operand,
                                ActivationDTypes on_cpu) {
    require_activation(rows, count, columns, "expanded_attention", operand, activations_on(lane.stream, on_cpu));
    if (device.kind != DeviceKind::cuda) return;
    require(rows.dtype == q.dtype, "expanded_attention: {} is {}, q {}", operand, name_of(rows.dtype),
            name_of(q.dtype));
    require(rows_are_aligned(rows), "expanded_attention: {} has rows that are not aligned to 16 bytes", operand);
  };
  const std::int64_t num_tokens = sequences.num_tokens(), num_keys = sequences.num_key_rows();
  require_rows(q, num_tokens, q.columns, "q", ActivationDTypes::float32);
  require_rows(params.keys_values, num_keys, std::int64_t{heads} * (head.nope_dim + head.value_dim), "keys_values",
               ActivationDTypes::float32);
  require_rows(shared, num_keys, shared.columns, "shared_keys", ActivationDTypes::with_bfloat16);
  if (params.after == nullptr)
    require_rows(params.y, num_tokens, std::int64_t{heads} * head.value_dim, "y", ActivationDTypes::float32);
  require(device.kind == DeviceKind::cpu || params.scale > 0, "expanded_attention: scale is {}, expected more than 0",
          params.scale);
  if (q.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (device.kind == DeviceKind::cuda) return expanded_attention_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) {
    for (int i = 0; i < params.sequences.count; ++i) expanded_attention_cpu(of_sequence(params, i), pool);
  });
}

}  // namespace heddle
#endif
