// attend(): computes one part of attention with the given multiplications. Included once per target, after
// hwy/highway.h; the include guard is Highway's idiom.
#if defined(HEDDLE_KERNELS_ATTENTION_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_ATTENTION_LOOP_INL_H_
#undef HEDDLE_KERNELS_ATTENTION_LOOP_INL_H_
#else
#define HEDDLE_KERNELS_ATTENTION_LOOP_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/attention/attention-inl.h"
#include "kernels/attention/attention_part.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Products says how queries multiply keys and weights multiply values:
//   Element               the cache's element
//   Powers                the base of the weights
//   Scratch               a Softmax, and the layout of queries, keys and values
//   take_query()          stores a row's query and the scale of its scores
//   take_key_or_value()   stores one position's key or value, `idx` after that of Keys::first
//   prepare_keys()        runs once after the keys of `keys` are stored, for all groups of rows
//   score()               computes Softmax::scores of a group's rows and of the keys; masked scores may be anything
//   put_weights()         stores a register of a row's weights, from a key on, for weigh_group()
//   prepare_values()      runs once after the values of `keys` are stored; it keeps what prepare_keys() made
//   add_values()          adds weights times values to Softmax::o

// Stores the part's keys or values at positions [begin, end), from place `idx` on.
template <class Products>
void take_positions(const PagedKv& kv, const void* pages, const std::int32_t* page_table, int head, int begin, int end,
                    typename Products::Scratch& scratch, int idx) {
  using Element = typename Products::Element;
  const int width = padded(kv.head_dim);
  int page_idx = begin / kv.page_size, slot = begin % kv.page_size;
  for (int position = begin; position < end; ++page_idx, slot = 0) {
    const int count = std::min(kv.page_size - slot, end - position);
    const auto* source = static_cast<const Element*>(pages) + kv.offset(page_table[page_idx], head, slot);
    for (int i = 0; i < count; ++i, ++position, ++idx, source += kv.head_dim)
      Products::take_key_or_value(scratch, idx, source, kv.head_dim, width);
  }
}

template <class Y>
HWY_INLINE void divide_row(const float* o, float sum, Y* y, int head_dim) {
  const Vector sums = hn::Set(Floats(), sum);
  int i = 0;
  for (; i + kWidth <= head_dim; i += kWidth) store(hn::Div(load(o + i), sums), y + i);
  for (; i < head_dim; ++i) store_one(o[i] / sum, y + i);
}

template <class Powers>
void store_sums(const AttentionParams& params, const AttentionPart& part, std::int64_t first_row,
                const Softmax& softmax) {
  const int columns = params.sum_columns(), group = params.num_heads / params.kv.num_kv_heads;
  for (int row = 0; row < part.num_rows(); ++row) {
    const std::int64_t token = first_row + row / part.num_heads;
    const int head = part.first_head + row % part.num_heads - part.kv_head * group;
    float* const unit = params.sums.unit(token * params.kv.num_kv_heads + part.kv_head);
    std::copy_n(softmax.o + row * padded(params.kv.head_dim), columns, unit + head * columns);
    unit[group * columns + head] = softmax.largest[row] / Powers::kExponent;
    unit[group * columns + group + head] = softmax.sum[row];
  }
}

template <class Products>
void attend(const AttentionParams& params, const AttentionPart& part) {
  const PagedKv& kv = params.kv;
  const PagedSequences& sequences = params.sequences;
  const int head_dim = kv.head_dim;
  const int width = padded(head_dim), columns = padded(params.sum_columns());
  const int at_once = keys_at_once(head_dim);
  const std::int32_t* page_table = sequences.pages(part.sequence);
  const std::int64_t first_row = sequences.query_start[part.sequence] + part.first_token;
  const int first_position =
      sequences.context_len[part.sequence] - sequences.num_new_tokens(part.sequence) + part.first_token;
  const int num_rows = part.num_rows();

  typename Products::Scratch scratch;
  for (int row = 0; row < num_rows; ++row) {
    const std::int64_t token = first_row + row / part.num_heads;
    const int head = part.first_head + row % part.num_heads;
    const float* q =
        static_cast<const float*>(params.q.data) + token * params.q.row_stride + std::int64_t{head} * head_dim;
    Products::take_query(scratch, row, num_rows, q, params.scale, head_dim, width);
    scratch.largest[row] = -std::numeric_limits<float>::infinity();
    scratch.sum[row] = 0;
  }
  std::fill_n(scratch.o, num_rows * width, 0.0f);

  // Keys by their places in this cache: no token of the part sees an earlier one, and the last token sees all before the end.
  const int first_key = kv.count(first_visible(first_position, params.window));
  const int end_key = kv.count(first_position + part.num_tokens);
  const int seen_by_all = kv.count(first_position);
  const int first_of_last = kv.count(first_visible(first_position + part.num_tokens - 1, params.window));
  const int first_block = first_key < end_key ? first_key / kBlockKeys * kBlockKeys : end_key;
  for (int block = first_block; block < end_key; block += kBlockKeys) {
    const int block_begin = std::max(first_key - block, 0);
    const int block_end = std::min(end_key - block, kBlockKeys), whole_tiles = round_up(block_end, kTileKeys);
    const bool all_see_all = block + kBlockKeys <= seen_by_all && first_of_last <= block;
    const auto for_each_load = [&](auto use) {
      for (int first = block_begin / at_once * at_once; first < block_end; first += at_once)
        use(Keys{.first = first,
                 .begin = std::max(first, block_begin),
                 .end = std::min(first + at_once, block_end),
                 .width = width,
                 .columns = columns});
    };
    const auto take = [&](const void* pages, const Keys& keys) {
      take_positions<Products>(kv, pages, page_table, part.kv_head, block + keys.begin, block + keys.end, scratch,
                               keys.begin - keys.first);
    };
    for (RowGroup rows{0, 0}; rows.begin < num_rows; rows.begin = rows.end) {
      rows.end = std::min(rows.begin + rows_of_group(head_dim, num_rows), num_rows);
      const bool first_group = rows.begin == 0;
      Visible seen[kMaxGroupRows];
      if (all_see_all)
        std::fill_n(seen, rows.end - rows.begin, Visible{0, kBlockKeys});
      else
        for_each_row(part, rows, [&](int row, int token) {
          seen[rows.slot(row)] = visible_places(kv, first_position + token, params.window, block, block_end);
        });
      for_each_load([&](const Keys& keys) {
        const int num_keys = std::min(at_once, whole_tiles - keys.first);
        if (first_group) {
          take(kv.keys, keys);
          Products::prepare_keys(scratch, keys, num_keys);
        }
        Products::score(scratch, rows, keys, num_keys);
      });
      weigh_group<Products>(scratch, rows, seen, whole_tiles, width);
      for_each_load([&](const Keys& keys) {
        if (first_group) {
          take(kv.values, keys);
          Products::prepare_values(scratch, keys);
        }
        Products::add_values(scratch, rows, keys, seen);
      });
    }
  }

  if (params.sums.first != nullptr) return store_sums<typename Products::Powers>(params, part, first_row, scratch);
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

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
