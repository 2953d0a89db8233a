// Multiplications in bfloat16 for attend(), on any SIMD target: queries and weights are rounded to bfloat16, and all
// operands are widened to float32. Included once per target, after hwy/highway.h; the include guard is Highway's idiom.
#if defined(HEDDLE_KERNELS_ATTENTION_ROUNDED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_ATTENTION_ROUNDED_INL_H_
#undef HEDDLE_KERNELS_ATTENTION_ROUNDED_INL_H_
#else
#define HEDDLE_KERNELS_ATTENTION_ROUNDED_INL_H_
#endif

#include <algorithm>

#include "kernels/attention/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Rounded to bfloat16.
HWY_INLINE Vector rounded_to_bfloat16(Vector values) {
  bfloat16 rounded[kWidth];
  store(values, rounded);
  return load(rounded);
}

// Scores of kRows queries from `row` on with transposed keys; a score is one chain over pairs of elements.
template <int kRows, int kGroups>
HWY_INLINE void score_pairs(Scratch& scratch, int row, int slot, const Keys& keys, int num_keys) {
  constexpr int kColumns = kGroups * kLanes;
  const float* q[kRows];
  float* scores[kRows];
  for (int r = 0; r < kRows; ++r) {
    q[r] = scratch.q + (row + r) * keys.width;
    scores[r] = scratch.scores[slot + r] + keys.first;
  }
  for (int column = 0; column < num_keys; column += kColumns) {
    OuterSums<kRows, kGroups * kRegisters> sums;
    sums.clear();
    sums.add_pairs(q, scratch.transposed + column * keys.width, kColumns, keys.width / 2);
    sums.store(scores, column, 1);
  }
}

template <int kGroups>
HWY_INLINE void score_transposed_pairs(Scratch& scratch, const RowGroup& rows, const Keys& keys, int num_keys) {
  int row = rows.begin;
  for (; row + kOuterRows <= rows.end; row += kOuterRows)
    score_pairs<kOuterRows, kGroups>(scratch, row, rows.slot(row), keys, num_keys);
  for (; row < rows.end; ++row) score_pairs<1, kGroups>(scratch, row, rows.slot(row), keys, num_keys);
}

// Like add_columns(), in pairs of keys; a pair with a masked key is one single key.
template <int kRows, int kGroups>
HWY_INLINE void add_column_pairs(Scratch& scratch, int row, int slot, const Keys& keys, int begin, int end,
                                 int column) {
  constexpr int kParts = kGroups * kRegisters;
  OuterSums<kRows, kParts> o;
  const float* weights[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
    for (int p = 0; p < kParts; ++p) o.sums[r][p] = load(scratch.o + (row + r) * keys.width + column + p * kWidth);
  const auto weights_from = [&](int key) -> decltype((weights)) {
    for (int r = 0; r < kRows; ++r) weights[r] = scratch.scores[slot + r] + key;
    return weights;
  };
  const auto values_from = [&](int key) { return scratch.kv + (key - keys.first) * keys.width + column; };
  const int first_pair = round_up(begin, 2), end_pair = end / 2 * 2;
  if (begin < first_pair) o.add(weights_from(begin), 1, values_from(begin), keys.width, 1);
  if (first_pair < end_pair)
    o.add_pairs(weights_from(first_pair), values_from(first_pair), keys.width, (end_pair - first_pair) / 2);
  if (end_pair < end && end_pair >= begin) o.add(weights_from(end_pair), 1, values_from(end_pair), keys.width, 1);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
    for (int p = 0; p < kParts; ++p)
      hn::StoreU(o.sums[r][p], Floats(), scratch.o + (row + r) * keys.width + column + p * kWidth);
}

template <int kRows>
HWY_INLINE void add_value_pairs(Scratch& scratch, int row, int slot, const Keys& keys, int begin, int end) {
  constexpr int kGroups = kRows == 1 ? 4 : kOuterGroups;
  int column = 0;
  for (; column + kGroups * kLanes <= keys.width; column += kGroups * kLanes)
    add_column_pairs<kRows, kGroups>(scratch, row, slot, keys, begin, end, column);
  for (; column < keys.width; column += kLanes)
    add_column_pairs<kRows, 1>(scratch, row, slot, keys, begin, end, column);
}

struct RoundedProducts {
  using Element = bfloat16;
  using Powers = PowersOfTwo;
  using Scratch = HWY_NAMESPACE::Scratch;

  static HWY_INLINE void take_query(Scratch& scratch, int row, int, const float* q, float scale, int head_dim,
                                    int width) {
    float* to = scratch.q + row * width;
    const float factor = scale * Powers::kExponent;
    for (int i = 0; i < head_dim; ++i) to[i] = q[i] * factor;
    std::fill(to + head_dim, to + width, 0.0f);
    for (int i = 0; i < width; i += kWidth) hn::StoreU(rounded_to_bfloat16(load(to + i)), Floats(), to + i);
  }
  static HWY_INLINE void take_key_or_value(Scratch& scratch, int idx, const bfloat16* from, int head_dim, int width) {
    widen(from, head_dim, width, scratch.kv + idx * width);
  }
  static HWY_NOINLINE void prepare_keys(Scratch& scratch, const Keys& keys, int num_keys) {
    clear_unread(scratch.kv, keys, num_keys);
    with_groups_for(num_keys, [&](auto groups) {
      transpose_keys<groups * kLanes>(scratch, num_keys, keys.width, [](int d) { return d; });
    });
  }
  static HWY_NOINLINE void score(Scratch& scratch, const RowGroup& rows, const Keys& keys, int num_keys) {
    with_groups_for(num_keys, [&](auto groups) { score_transposed_pairs<groups>(scratch, rows, keys, num_keys); });
  }
  static HWY_INLINE void put_weights(Scratch& scratch, int slot, int key, Vector weights) {
    hn::StoreU(rounded_to_bfloat16(weights), Floats(), scratch.scores[slot] + key);
  }
  static HWY_INLINE void prepare_values(Scratch&, const Keys&) {}
  static HWY_NOINLINE void add_values(Scratch& scratch, const RowGroup& rows, const Keys& keys, const Visible* seen) {
    share_values<2>(rows, keys, seen, [&](auto num_rows, int row, int begin, int end) {
      add_value_pairs<num_rows>(scratch, row, rows.slot(row), keys, begin, end);
    });
  }
};

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
