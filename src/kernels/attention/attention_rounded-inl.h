// Multiplications in bfloat16 for attend(), on any SIMD target: queries and weights are rounded to bfloat16, and
// operands are widened to float32 in registers, the values of many rows in memory. Included once per target, after
// hwy/highway.h; the include guard is Highway's idiom.
#if defined(HEDDLE_KERNELS_ATTENTION_ROUNDED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_ATTENTION_ROUNDED_INL_H_
#undef HEDDLE_KERNELS_ATTENTION_ROUNDED_INL_H_
#else
#define HEDDLE_KERNELS_ATTENTION_ROUNDED_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/attention/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

struct RoundedScratch : Softmax {
  alignas(64) float q[kRowFloats];
  alignas(64) bfloat16 kv[kKeyFloats];                   // as in the cache
  alignas(64) std::uint32_t transposed[kKeyFloats / 2];  // pairs of elements: [num_keys / columns, width / 2, columns]
  alignas(64) float values[kKeyFloats];                  // widened, where there are many rows
  bool many_rows;
};

// From this many rows on, widening values once costs less than doing so for each four rows.
constexpr int kFewestRowsToWiden = 32;

// Rounded to bfloat16.
HWY_INLINE Vector rounded_to_bfloat16(Vector values) {
  bfloat16 rounded[kWidth];
  store(values, rounded);
  return load(rounded);
}

// OuterSums where b is bfloat16, which is widened in registers.
template <int kRows, int kParts>
struct PairSums : OuterSums<kRows, kParts> {
  using OuterSums<kRows, kParts>::add;
  using OuterSums<kRows, kParts>::add_pairs;

  HWY_INLINE PairSums() {}  // an implicit one would not be compiled for the target

  HWY_INLINE void add(const float* const (&a)[kRows], std::ptrdiff_t a_step, const bfloat16* b, std::ptrdiff_t b_step,
                      int count) {
    std::ptrdiff_t at = 0;
    for (int i = 0; i < count; ++i, at += a_step, b += b_step) add_one(a, at, b);
  }
  HWY_INLINE void add_pairs(const float* const (&a)[kRows], const bfloat16* b, std::ptrdiff_t b_step, int num_pairs) {
    for (int i = 0; i < 2 * num_pairs; i += 2, b += 2 * b_step) {
      add_one(a, i + 1, b + b_step);
      add_one(a, i, b);
    }
  }

  // add_pairs() where b[i * b_step + column] has elements 2 * i and 2 * i + 1 as its lower and upper half.
  HWY_INLINE void add_packed_pairs(const float* const (&a)[kRows], const std::uint32_t* b, std::ptrdiff_t b_step,
                                   int num_pairs) {
    const hn::RebindToUnsigned<Floats> d32;
    const auto upper = hn::Set(d32, 0xffff0000u);
    for (int i = 0; i < 2 * num_pairs; i += 2, b += b_step) {
      Vector even[kParts], odd[kParts];
#pragma GCC unroll 4 * kUnroll
      for (int p = 0; p < kParts; ++p) {
        const auto pairs = hn::LoadU(d32, b + p * kWidth);
        odd[p] = in_register(hn::BitCast(Floats(), hn::And(pairs, upper)));
        even[p] = in_register(hn::BitCast(Floats(), hn::ShiftLeft<16>(pairs)));
      }
      multiply(a, i + 1, odd);
      multiply(a, i, even);
    }
  }

 private:
  HWY_INLINE void add_one(const float* const (&a)[kRows], std::ptrdiff_t at, const bfloat16* b) {
    Vector columns[kParts];
#pragma GCC unroll 4 * kUnroll
    for (int p = 0; p < kParts; ++p) columns[p] = in_register(load(b + p * kWidth));
    multiply(a, at, columns);
  }
  HWY_INLINE void multiply(const float* const (&a)[kRows], std::ptrdiff_t at, const Vector (&columns)[kParts]) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vector factor = hn::Set(Floats(), a[r][at]);
#pragma GCC unroll 4 * kUnroll
      for (int p = 0; p < kParts; ++p) this->sums[r][p] = hn::MulAdd(factor, columns[p], this->sums[r][p]);
    }
  }
};

// Scores of kRows queries from `row` on with transposed keys; a score is one chain over pairs of elements.
template <int kRows, int kGroups>
HWY_INLINE void score_pairs(RoundedScratch& scratch, int row, int slot, const Keys& keys, int num_keys) {
  constexpr int kColumns = kGroups * kLanes;
  const float* q[kRows];
  float* scores[kRows];
  for (int r = 0; r < kRows; ++r) {
    q[r] = scratch.q + (row + r) * keys.width;
    scores[r] = scratch.scores[slot + r] + keys.first;
  }
  for (int column = 0; column < num_keys; column += kColumns) {
    PairSums<kRows, kGroups * kRegisters> sums;
    sums.clear();
    sums.add_packed_pairs(q, scratch.transposed + column * (keys.width / 2), kColumns, keys.width / 2);
    sums.store(scores, column, 1);
  }
}

template <int kGroups>
HWY_INLINE void score_transposed_pairs(RoundedScratch& scratch, const RowGroup& rows, const Keys& keys, int num_keys) {
  int row = rows.begin;
  for (; row + kOuterRows <= rows.end; row += kOuterRows)
    score_pairs<kOuterRows, kGroups>(scratch, row, rows.slot(row), keys, num_keys);
  for (; row < rows.end; ++row) score_pairs<1, kGroups>(scratch, row, rows.slot(row), keys, num_keys);
}

// Like add_columns(), in pairs of keys; a pair with a masked key is one single key. `values` are those of keys.first on.
template <int kRows, int kGroups, class Value>
HWY_INLINE void add_column_pairs(RoundedScratch& scratch, const Value* values, int row, int slot, const Keys& keys,
                                 int begin, int end, int column) {
  constexpr int kParts = kGroups * kRegisters;
  PairSums<kRows, kParts> o;
  const float* weights[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
    for (int p = 0; p < kParts; ++p) o.sums[r][p] = load(scratch.o + (row + r) * keys.width + column + p * kWidth);
  const auto weights_from = [&](int key) -> decltype((weights)) {
    for (int r = 0; r < kRows; ++r) weights[r] = scratch.scores[slot + r] + key;
    return weights;
  };
  const auto values_from = [&](int key) { return values + (key - keys.first) * keys.width + column; };
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

template <int kRows, class Value>
HWY_INLINE void add_value_pairs(RoundedScratch& scratch, const Value* values, int row, int slot, const Keys& keys,
                                int begin, int end) {
  constexpr int kGroups = kRows == 1 ? 4 : kOuterGroups;
  int column = 0;
  for (; column + kGroups * kLanes <= keys.columns; column += kGroups * kLanes)
    add_column_pairs<kRows, kGroups>(scratch, values, row, slot, keys, begin, end, column);
  for (; column < keys.columns; column += kLanes)
    add_column_pairs<kRows, 1>(scratch, values, row, slot, keys, begin, end, column);
}

struct RoundedProducts {
  using Element = bfloat16;
  using Powers = PowersOfTwo;
  using Scratch = RoundedScratch;

  static HWY_INLINE void take_query(Scratch& scratch, int row, int num_rows, const float* q, float scale, int head_dim,
                                    int width) {
    scratch.many_rows = num_rows >= kFewestRowsToWiden;
    float* to = scratch.q + row * width;
    const float factor = scale * Powers::kExponent;
    for (int i = 0; i < head_dim; ++i) to[i] = q[i] * factor;
    std::fill(to + head_dim, to + width, 0.0f);
    for (int i = 0; i < width; i += kWidth) hn::StoreU(rounded_to_bfloat16(load(to + i)), Floats(), to + i);
  }
  static HWY_INLINE void take_key_or_value(Scratch& scratch, int idx, const bfloat16* from, int head_dim, int width) {
    bfloat16* to = scratch.kv + idx * width;
    std::memcpy(to, from, static_cast<std::size_t>(head_dim) * sizeof(bfloat16));
    std::fill(to + head_dim, to + width, bfloat16{});
  }
  static HWY_NOINLINE void prepare_keys(Scratch& scratch, const Keys& keys, int num_keys) {
    clear_unread(scratch.kv, keys, num_keys);
    with_groups_for(num_keys, [&](auto groups) {
      transpose_keys<groups * kLanes>(reinterpret_cast<const std::uint32_t*>(scratch.kv), scratch.transposed, num_keys,
                                      keys.width / 2, [](int pair) { return pair; });
    });
  }
  static HWY_NOINLINE void score(Scratch& scratch, const RowGroup& rows, const Keys& keys, int num_keys) {
    with_groups_for(num_keys, [&](auto groups) { score_transposed_pairs<groups>(scratch, rows, keys, num_keys); });
  }
  static HWY_INLINE void put_weights(Scratch& scratch, int slot, int key, Vector weights) {
    hn::StoreU(rounded_to_bfloat16(weights), Floats(), scratch.scores[slot] + key);
  }
  static HWY_INLINE void prepare_values(Scratch& scratch, const Keys& keys) {
    if (!scratch.many_rows) return;
    const int begin = (keys.begin - keys.first) * keys.width, end = (keys.end - keys.first) * keys.width;
    widen(scratch.kv + begin, end - begin, end - begin, scratch.values + begin);
  }
  static HWY_NOINLINE void add_values(Scratch& scratch, const RowGroup& rows, const Keys& keys, const Visible* seen) {
    const auto add = [&](const auto* values) {
      share_values<2>(rows, keys, seen, [&](auto num_rows, int row, int begin, int end) {
        add_value_pairs<num_rows>(scratch, values, row, rows.slot(row), keys, begin, end);
      });
    };
    scratch.many_rows ? add(scratch.values) : add(scratch.kv);
  }
};

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
