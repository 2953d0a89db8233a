#include "kernels/attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

#ifndef HEDDLE_KERNELS_ATTENTION_PART_  // once, though Highway includes this file once a target
#define HEDDLE_KERNELS_ATTENTION_PART_
namespace heddle {

// What one call computes: for some consecutive new tokens of one sequence, some query heads of one KV head. The pairs
// (token, head) are the part's rows, head fastest, so that each key is read once for all of them.
struct AttentionPart {
  int sequence = 0;
  int first_token = 0;  // within the sequence's new tokens
  int num_tokens = 0;
  int kv_head = 0;
  int first_head = 0;
  int num_heads = 0;

  int num_rows() const { return num_tokens * num_heads; }
};

inline constexpr int kMaxRows = 32;                  // of a part
inline constexpr int kRowFloats = 4 * kMaxHeadDim;   // queries or outputs of a part: 32 rows up to head_dim 128
inline constexpr int kBlockKeys = 64;                // of the softmax: part of the definition, see attention.h
inline constexpr int kKeyFloats = kBlockKeys * 256;  // widened keys or values at once; fewer than 64 above head_dim 256

// Rows lie padded with zeros to whole groups of lanes.
inline int padded(int head_dim) {
  return round_up(head_dim, 16);
}

// The first key that the token at `position` sees.
inline int first_visible(int position, int window) {
  return window > 0 ? std::max(0, position - window + 1) : 0;
}

}  // namespace heddle
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/lanes-inl.h"
// After lanes-inl.h.
#include "kernels/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

struct Scratch {
  alignas(64) float q[kRowFloats];
  alignas(64) float o[kRowFloats];
  alignas(64) float kv[kKeyFloats];
  alignas(64) float scores[kMaxRows][kBlockKeys];  // then exp(score - largest)
  float largest[kMaxRows];
  float sum[kMaxRows];
};

template <class W>
HWY_INLINE void widen(const W* source, int count, int padded_count, float* destination) {
  int i = 0;
  for (; i + kWidth <= count; i += kWidth) hn::StoreU(load(source + i), Floats(), destination + i);
  for (; i < count; ++i) destination[i] = to_float(source[i]);
  for (; i < padded_count; ++i) destination[i] = 0;
}

// The part's view of keys or values at positions [begin, end), widened and side by side.
template <class W>
void load_positions(const PagedKv& kv, const void* pages, const std::int32_t* page_table, int head, int begin, int end,
                    float* destination) {
  const int width = padded(kv.head_dim);
  int page_idx = begin / kv.page_size, slot = begin % kv.page_size;
  for (int position = begin; position < end; ++page_idx, slot = 0) {
    const int count = std::min(kv.page_size - slot, end - position);
    const W* source = static_cast<const W*>(pages) + kv.offset(page_table[page_idx], head, slot);
    for (int i = 0; i < count; ++i, ++position, source += kv.head_dim, destination += width)
      widen(source, kv.head_dim, width, destination);
  }
}

// What follows works on widened elements. It stays out of line, once for all dtypes.

// scores[row][first + j] = dot(q[row], keys[j]) * scale.
template <int kKeys, int kRows>
HWY_INLINE void score_keys(Scratch& scratch, int num_rows, int first, int num_keys, int width, float scale) {
  for (int key = 0; key < num_keys; key += kKeys) {
    const float* k[kKeys];
    for (int i = 0; i < kKeys; ++i) k[i] = scratch.kv + std::min(key + i, num_keys - 1) * width;
    for (int row = 0; row < num_rows; row += kRows) {
      const float* q[kRows];
      for (int i = 0; i < kRows; ++i) q[i] = scratch.q + std::min(row + i, num_rows - 1) * width;
      Tile<kKeys, kRows> tile = dot_tile<kKeys, kRows>(k, q, width);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        if constexpr (kKeys == 4) {
          if (key + kKeys <= num_keys && row + r < num_rows) {
            const Vector(*const lanes[4])[kRegisters] = {&tile.lanes[0][r], &tile.lanes[1][r], &tile.lanes[2][r],
                                                         &tile.lanes[3][r]};
            store_sums_of_four(lanes, scale, scratch.scores[row + r] + first + key);
            continue;
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kKeys; ++i) {
          const float score = sum_lanes(tile.lanes[i][r]) * scale;
          if (key + i < num_keys && row + r < num_rows) scratch.scores[row + r][first + key + i] = score;
        }
      }
    }
  }
}

HWY_NOINLINE void score_block(Scratch& scratch, int num_rows, int first, int num_keys, int width, float scale) {
  if (num_rows == 1)
    score_keys<4, 1>(scratch, num_rows, first, num_keys, width, scale);
  else if (num_rows <= 4)
    score_keys<2, 2>(scratch, num_rows, first, num_keys, width, scale);
  else
    score_keys<kTileRows, kTileTokens>(scratch, num_rows, first, num_keys, width, scale);
}

// Turns the scores [begin, end) of a row, those that it sees of a block, into weights, and brings the row's maximum,
// sum and output up to them.
HWY_NOINLINE void weigh_row(Scratch& scratch, int row, int begin, int end, int width) {
  const Floats d;
  float* scores = scratch.scores[row];
  std::fill(scores, scores + begin, -std::numeric_limits<float>::infinity());
  std::fill(scores + end, scores + kBlockKeys, -std::numeric_limits<float>::infinity());

  const float before = scratch.largest[row];
  Vector maxima = hn::Set(d, before);
  for (int key = 0; key < kBlockKeys; key += kWidth) {
    const Vector score = load(scores + key);
    maxima = hn::IfThenElse(hn::Gt(score, maxima), score, maxima);  // passes over NaN, whose weight will be NaN
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, maxima));

  const Vector shift = hn::Set(d, largest);
  Vector lanes[kRegisters];
  for (int i = 0; i < kRegisters; ++i) lanes[i] = hn::Zero(d);
  for (int key = 0; key < kBlockKeys; key += kLanes) {
    for (int i = 0; i < kRegisters; ++i) {
      float* at = scores + key + i * kWidth;
      const Vector weight = exp(d, hn::Sub(load(at), shift));
      hn::StoreU(weight, d, at);
      lanes[i] = hn::Add(lanes[i], weight);
    }
  }
  const float block_sum = sum_lanes(lanes);

  const Vector correction = exp(d, hn::Sub(hn::Set(d, before), shift));
  scratch.sum[row] = hn::GetLane(hn::MulAdd(hn::Set(d, scratch.sum[row]), correction, hn::Set(d, block_sum)));
  scratch.largest[row] = largest;
  float* o = scratch.o + row * width;
  for (int i = 0; i < width; i += kWidth) hn::StoreU(hn::Mul(load(o + i), correction), d, o + i);
}

// o[row] += weights[row][first + j] * values[j] for j in [begin, end), one after the other, for kRows rows from `row`
// and kGroups groups of sixteen columns.
template <int kRows, int kGroups>
HWY_INLINE void add_columns(Scratch& scratch, int row, int first, int begin, int end, int width, int column) {
  constexpr int kParts = kGroups * kRegisters;
  const Floats d;
  Vector o[kRows][kParts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
    for (int i = 0; i < kParts; ++i) o[r][i] = load(scratch.o + (row + r) * width + column + i * kWidth);
  for (int j = begin; j < end; ++j) {
    const float* value = scratch.kv + j * width + column;
    Vector values[kParts];
#pragma GCC unroll 4 * kUnroll
    for (int i = 0; i < kParts; ++i) values[i] = load(value + i * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vector weight = hn::Set(d, scratch.scores[row + r][first + j]);
#pragma GCC unroll 4 * kUnroll
      for (int i = 0; i < kParts; ++i) o[r][i] = hn::MulAdd(weight, values[i], o[r][i]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
    for (int i = 0; i < kParts; ++i) hn::StoreU(o[r][i], d, scratch.o + (row + r) * width + column + i * kWidth);
}

// All columns. One row alone takes four groups at a time: a sum waits for its last addition, so eight must be under
// way; and so do four rows where registers hold sixteen sums beside what is multiplied.
template <int kRows>
HWY_INLINE void add_values(Scratch& scratch, int row, int first, int begin, int end, int width) {
  constexpr int kGroups = kRows == 1 || kRegisters == 1 ? 4 : 1;
  int column = 0;
  for (; column + kGroups * kLanes <= width; column += kGroups * kLanes)
    add_columns<kRows, kGroups>(scratch, row, first, begin, end, width, column);
  for (; column < width; column += kLanes) add_columns<kRows, 1>(scratch, row, first, begin, end, width, column);
}

// Which of `num_keys` keys from position `first_key` on a row sees: [begin, end), counted from first_key. Both ends
// grow from row to row.
struct Visible {
  int begin, end;
};

HWY_INLINE Visible visible_keys(const AttentionPart& part, int row, int first_position, int window, int first_key,
                                int num_keys) {
  const int position = first_position + row / part.num_heads;
  return {std::clamp(first_visible(position, window) - first_key, 0, num_keys),
          std::clamp(position + 1 - first_key, 0, num_keys)};
}

// Adds the values of `num_keys` keys from position block + first on, which lie in scratch.kv, to all rows that see
// them.
HWY_NOINLINE void add_visible_values(Scratch& scratch, const AttentionPart& part, int first_position, int window,
                                     int block, int first, int num_keys, int width) {
  constexpr int kRows = 4;
  const int num_rows = part.num_rows();
  const auto visible = [&](int row) {
    return visible_keys(part, row, first_position, window, block + first, num_keys);
  };
  const auto add_to_row = [&](int row, int begin, int end) {
    if (begin < end) add_values<1>(scratch, row, first, begin, end, width);
  };
  for (int row = 0; row < num_rows; row += kRows) {
    const int group = std::min(kRows, num_rows - row);
    const int begin = visible(row + group - 1).begin, end = visible(row).end;  // seen by the whole group
    if (group < kRows || begin >= end) {
      for (int r = row; r < row + group; ++r) add_to_row(r, visible(r).begin, visible(r).end);
      continue;
    }
    for (int r = row; r < row + group; ++r) add_to_row(r, visible(r).begin, begin);
    add_values<kRows>(scratch, row, first, begin, end, width);
    for (int r = row; r < row + group; ++r) add_to_row(r, end, visible(r).end);
  }
}

template <class Y>
HWY_INLINE void divide_row(const float* o, float sum, Y* y, int head_dim) {
  const Vector sums = hn::Set(Floats(), sum);
  int i = 0;
  for (; i + kWidth <= head_dim; i += kWidth) store(hn::Div(load(o + i), sums), y + i);
  for (; i < head_dim; ++i) store_one(o[i] / sum, y + i);
}

template <class W>
void attend(const AttentionParams& params, const AttentionPart& part) {
  const PagedKv& kv = params.kv;
  const PagedSequences& sequences = params.sequences;
  const int head_dim = kv.head_dim;
  const int width = padded(head_dim);
  const int keys_at_once = std::min(kBlockKeys, kKeyFloats / width);
  const std::int32_t* page_table = sequences.pages(part.sequence);
  const std::int64_t first_row = sequences.query_start[part.sequence] + part.first_token;
  const int first_position =
      sequences.context_len[part.sequence] - sequences.num_new_tokens(part.sequence) + part.first_token;
  const int num_rows = part.num_rows();

  Scratch scratch;
  for (int row = 0; row < num_rows; ++row) {
    const std::int64_t token = first_row + row / part.num_heads;
    const int head = part.first_head + row % part.num_heads;
    widen(static_cast<const float*>(params.q.data) + token * params.q.row_stride + std::int64_t{head} * head_dim,
          head_dim, width, scratch.q + row * width);
    scratch.largest[row] = -std::numeric_limits<float>::infinity();
    scratch.sum[row] = 0;
  }
  std::fill_n(scratch.o, num_rows * width, 0.0f);

  const int first_key = first_visible(first_position, params.window);  // what comes before, nobody here sees
  const int end_key = first_position + part.num_tokens;                // the last token sees what comes before
  for (int block = first_key / kBlockKeys * kBlockKeys; block < end_key; block += kBlockKeys) {
    const int block_begin = std::max(first_key, block);
    const int block_end = std::min(end_key, block + kBlockKeys);
    for (int begin = block_begin; begin < block_end; begin += keys_at_once) {
      const int end = std::min(block_end, begin + keys_at_once);
      load_positions<W>(kv, kv.keys, page_table, part.kv_head, begin, end, scratch.kv);
      score_block(scratch, num_rows, begin - block, end - begin, width, params.scale);
    }
    for (int row = 0; row < num_rows; ++row) {
      const Visible visible = visible_keys(part, row, first_position, params.window, block, block_end - block);
      if (visible.begin < visible.end) weigh_row(scratch, row, visible.begin, visible.end, width);
    }
    for (int begin = block_begin; begin < block_end; begin += keys_at_once) {
      const int end = std::min(block_end, begin + keys_at_once);
      load_positions<W>(kv, kv.values, page_table, part.kv_head, begin, end, scratch.kv);
      add_visible_values(scratch, part, first_position, params.window, block, begin - block, end - begin, width);
    }
  }

  for (int row = 0; row < num_rows; ++row) {
    const std::int64_t token = first_row + row / part.num_heads;
    const int head = part.first_head + row % part.num_heads;
    const std::int64_t y = token * params.y.row_stride + std::int64_t{head} * head_dim;
    const float* o = scratch.o + row * width;
    if (params.y.dtype == DType::bfloat16)
      divide_row(o, scratch.sum[row], static_cast<bfloat16*>(params.y.data) + y, head_dim);
    else
      divide_row(o, scratch.sum[row], static_cast<float*>(params.y.data) + y, head_dim);
  }
}

void attend_part(const AttentionParams& params, const AttentionPart& part) {
  switch (params.kv.dtype) {
    case DType::float32:
      return attend<float>(params, part);
    case DType::bfloat16:
      return attend<bfloat16>(params, part);
    case DType::float16:
      return attend<float16>(params, part);
  }
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {
namespace {

HWY_EXPORT(attend_part);

// How a step is cut into parts. The cut decides what is read together, never a result.
struct Cut {
  const AttentionParams& params;
  int group;           // query heads of a KV head
  int heads_per_part;  // of a group; the last part may have fewer
  int head_parts;      // of a group
  int tokens_per_part;

  explicit Cut(const AttentionParams& of)
      : params(of),
        group(of.num_heads / of.kv.num_kv_heads),
        heads_per_part(std::min(group, std::min(kMaxRows, kRowFloats / padded(of.kv.head_dim)))),
        head_parts(ceil_div(group, heads_per_part)),
        tokens_per_part(std::min(kMaxRows, kRowFloats / padded(of.kv.head_dim)) / heads_per_part) {}

  std::int64_t parts_of(int sequence) const {
    return std::int64_t{ceil_div(params.sequences.num_new_tokens(sequence), tokens_per_part)} * head_parts *
           params.kv.num_kv_heads;
  }

  // Part `index` of a sequence.
  AttentionPart at(int sequence, std::int64_t index) const {
    const auto head_part = static_cast<int>(index % head_parts);
    const auto kv_head = static_cast<int>(index / head_parts % params.kv.num_kv_heads);
    const auto tile = static_cast<int>(index / head_parts / params.kv.num_kv_heads);
    const int first_token = tile * tokens_per_part;
    const int first_head = head_part * heads_per_part;
    return {.sequence = sequence,
            .first_token = first_token,
            .num_tokens = std::min(tokens_per_part, params.sequences.num_new_tokens(sequence) - first_token),
            .kv_head = kv_head,
            .first_head = kv_head * group + first_head,
            .num_heads = std::min(heads_per_part, group - first_head)};
  }
};

void attention_cpu(const AttentionParams& params, ThreadPool& pool) {
  const Cut cut(params);
  const int num_sequences = params.sequences.num_sequences;
  std::int64_t num_parts = 0, work = 0;
  for (int sequence = 0; sequence < num_sequences; ++sequence) {
    const int context_len = params.sequences.context_len[sequence];
    num_parts += cut.parts_of(sequence);
    work += cut.parts_of(sequence) * (params.window > 0 ? std::min(params.window, context_len) : context_len);
  }
  if (num_parts == 0) return;
  const std::int64_t work_per_part = work / num_parts * params.kv.head_dim * cut.tokens_per_part;

  const auto attend = HWY_DYNAMIC_DISPATCH(attend_part);
  pool.parallel_for(num_parts, rows_per_piece(work_per_part), [&](std::int64_t begin, std::int64_t end) {
    int sequence = 0;
    std::int64_t before = 0;  // parts of earlier sequences
    for (std::int64_t part = begin; part < end; ++part) {
      for (; part - before >= cut.parts_of(sequence); ++sequence) before += cut.parts_of(sequence);
      attend(params, cut.at(sequence, part - before));
    }
  });
}

}  // namespace

void attention(const AttentionParams& params, Stream& stream) {
  require_cpu(stream, "attention");
  require_paged_kv(params.kv, params.sequences, params.q.rows, "attention");
  require(params.kv.head_dim <= kMaxHeadDim, "attention: head_dim is {}, at most {} are supported", params.kv.head_dim,
          kMaxHeadDim);
  require(params.num_heads > 0 && params.num_heads % params.kv.num_kv_heads == 0,
          "attention: num_heads {} is not a multiple of num_kv_heads {}", params.num_heads, params.kv.num_kv_heads);
  require(params.window >= 0, "attention: window is {}, expected 0 for none, or a number of keys", params.window);
  const std::int64_t columns = std::int64_t{params.num_heads} * params.kv.head_dim;
  require_activation(params.q, params.q.rows, columns, "attention", "q");
  require_activation(params.y, params.q.rows, columns, "attention", "y", ActivationDTypes::with_bfloat16);
  if (params.q.rows == 0) return;
  stream.enqueue([params](ThreadPool& pool) { attention_cpu(params, pool); });
}

}  // namespace heddle
#endif
