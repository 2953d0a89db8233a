// Attention over one block of keys and values widened to float32, with multiplications in float32; and the softmax of
// any block. Included once per target, after hwy/highway.h; the include guard is Highway's idiom.
#if defined(HEDDLE_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_ATTENTION_INL_H_
#undef HEDDLE_KERNELS_ATTENTION_INL_H_
#else
#define HEDDLE_KERNELS_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/checked.h"
#include "kernels/attention/attention_part.h"
#include "kernels/cpu/tiles-inl.h"
// After lanes-inl.h.
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

template <class W>
HWY_INLINE void widen(const W* source, int count, int padded_count, float* destination) {
  int i = 0;
  for (; i + kWidth <= count; i += kWidth) hn::StoreU(load(source + i), Floats(), destination + i);
  for (; i < count; ++i) destination[i] = to_float(source[i]);
  for (; i < padded_count; ++i) destination[i] = 0;
}

// The state of the online softmax of a part's rows.
struct Softmax {
  alignas(64) float o[kRowFloats];
  alignas(64) float scores[kMaxGroupRows][kBlockKeys];  // of a row group; weights may replace them
  float largest[kMaxRows];
  float sum[kMaxRows];
};

struct Scratch : Softmax {
  alignas(64) float q[kRowFloats];
  alignas(64) float kv[kKeyFloats];
  alignas(64) float transposed[kKeyFloats];  // transposed keys, where there are many rows
  bool many_rows;
  float scale;
};

// The keys of a block that lie in scratch.kv: the positions block + [begin, end) that some row sees. Only these were
// read.
struct Keys {
  int first;  // scratch.kv begins with the block's key `first`, a multiple of 16
  int begin, end;
  int width;    // stride between keys in floats
  int columns;  // of values, up to width, that anybody reads: a multiple of 16
};

// The size of an outer tile: as many sums as registers allow beside the operands, in whole groups of sixteen columns.
constexpr int kOuterRows = 4;
constexpr int kOuterGroups = kRegisters == 1 ? 4 : 1;

// The order in which ScoreTile adds the lanes of a dot product.
constexpr int kLaneOrder[kLanes] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};  // its own inverse

// The place of element d of a transposed query or key of padded length `width`.
constexpr int place_of(int d, int width) {
  return kLaneOrder[d % kLanes] * (width / kLanes) + d / kLanes;
}

HWY_INLINE void reorder_query(float* q, int width) {
  float as_it_was[kMaxHeadDim];
  std::copy_n(q, width, as_it_was);
  for (int d = 0; d < width; ++d) q[place_of(d, width)] = as_it_was[d];
}

#if HWY_TARGET != HWY_SCALAR
// Groups of four lanes, each loaded `step` elements after the last.
template <class D>
HWY_INLINE hn::Vec<D> load_fours(D d, const hn::TFromD<D>* from, std::ptrdiff_t step) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    const auto upper = load_fours(half, from + static_cast<std::ptrdiff_t>(hn::MaxLanes(half)) / 4 * step, step);
    return hn::Combine(d, upper, load_fours(half, from, step));
  }
}
#endif

// Transposes `num_keys` keys, a multiple of 16, of `width` elements of 32 bits, a multiple of 4, from kv into transposed:
// [num_keys / kColumns, width, kColumns], with element d at place_in_lanes(d).
template <int kColumns, class T, class Place>
HWY_INLINE void transpose_keys(const T* kv, T* transposed, int num_keys, int width, const Place& place_in_lanes) {
  const auto place = [&](int element, int key) {
    return transposed + (key / kColumns * width + place_in_lanes(element)) * kColumns + key % kColumns;
  };
#if HWY_TARGET == HWY_SCALAR
  for (int key = 0; key < num_keys; ++key)
    for (int i = 0; i < width; ++i) std::memcpy(place(i, key), kv + key * width + i, sizeof(T));
#else
  const hn::Rebind<T, Floats> d;
  for (int i = 0; i < width; i += 4) {
    for (int key = 0; key < num_keys; key += kWidth) {
      // Elements i to i + 3 of every fourth key from `key` on, of every fourth from `key` + 1 on, ...
      const T* from = kv + key * width + i;
      const auto keys0 = load_fours(d, from, 4 * width), keys1 = load_fours(d, from + width, 4 * width);
      const auto keys2 = load_fours(d, from + 2 * width, 4 * width), keys3 = load_fours(d, from + 3 * width, 4 * width);
      // In each group of four lanes: elements 0 and 1 of keys 0 and 2, of keys 1 and 3, then elements 2 and 3.
      const auto lower02 = hn::InterleaveLower(d, keys0, keys2), lower13 = hn::InterleaveLower(d, keys1, keys3);
      const auto upper02 = hn::InterleaveUpper(d, keys0, keys2), upper13 = hn::InterleaveUpper(d, keys1, keys3);
      hn::StoreU(hn::InterleaveLower(d, lower02, lower13), d, place(i, key));
      hn::StoreU(hn::InterleaveUpper(d, lower02, lower13), d, place(i + 1, key));
      hn::StoreU(hn::InterleaveLower(d, upper02, upper13), d, place(i + 2, key));
      hn::StoreU(hn::InterleaveUpper(d, upper02, upper13), d, place(i + 3, key));
    }
  }
#endif
}

// Scores of kOuterRows transposed queries and kGroups * 16 transposed keys. Computes the sums of the dot product's
// lanes for as many keys as a register holds, lane by lane. The order is such that lanes are added as soon as they are
// complete and at most four sums wait: lanes 0 and 8 first, then 4 and 12, then both sums, as README.md defines it.
template <int kGroups>
struct ScoreTile {
  static constexpr int kParts = kGroups * kRegisters;
  using Sums = OuterSums<kOuterRows, kParts>;

  const float* const (&q)[kOuterRows];
  const float* keys;
  int count;  // elements per lane
  float (&waiting)[4][kOuterRows][kParts * kWidth];

  // Adds the sums of places [first_place, first_place + 2^kLevel).
  template <int kLevel>
  HWY_INLINE Sums sum(int first_place) const {
    Sums sums;
    if constexpr (kLevel == 0) {
      const float* from[kOuterRows];
#pragma GCC unroll 8
      for (int r = 0; r < kOuterRows; ++r) from[r] = q[r] + first_place * count;
      sums.clear();
      sums.add(from, 1, keys + first_place * count * kParts * kWidth, kParts * kWidth, count);
    } else {
      sum<kLevel - 1>(first_place).store(waiting[kLevel - 1]);
      sums = sum<kLevel - 1>(first_place + (1 << (kLevel - 1)));
      sums.add_to(waiting[kLevel - 1]);
    }
    return sums;
  }
};

// For many rows: keys are transposed once for all rows, so a register holds scores of one row instead of lanes of one
// score. Masked scores are computed too, and dropped in weigh_rows. `num_keys` is a multiple of kGroups * 16.
template <int kGroups>
HWY_INLINE void score_transposed(Scratch& scratch, const RowGroup& rows, const Keys& keys, int num_keys) {
  constexpr int kColumns = kGroups * kLanes;
  alignas(64) float waiting[4][kOuterRows][kColumns];
  for (int row = rows.begin; row < rows.end; row += kOuterRows) {
    float dropped[kBlockKeys];
    const float* q[kOuterRows];
    float* scores[kOuterRows];
    for (int r = 0; r < kOuterRows; ++r) {
      q[r] = scratch.q + std::min(row + r, rows.end - 1) * keys.width;
      scores[r] = row + r < rows.end ? scratch.scores[rows.slot(row + r)] + keys.first : dropped;
    }
    for (int column = 0; column < num_keys; column += kColumns) {
      const ScoreTile<kGroups> tile{q, scratch.transposed + column * keys.width, keys.width / kLanes, waiting};
      tile.template sum<4>(0).store(scores, column, scratch.scale);
    }
  }
}

// Zeros those of `num_keys` keys in `kv` that were not read.
template <class T>
HWY_INLINE void clear_unread(T* kv, const Keys& keys, int num_keys) {
  std::fill(kv, kv + (keys.begin - keys.first) * keys.width, T{});
  std::fill(kv + (keys.end - keys.first) * keys.width, kv + num_keys * keys.width, T{});
}

// Selects the widest tile that divides the keys: calls use(groups of sixteen keys, as a constant).
template <class Use>
HWY_INLINE void with_groups_for(int num_keys, const Use& use) {
  if constexpr (kOuterGroups > 1)
    if (num_keys % (kOuterGroups * kLanes) == 0) return use(std::integral_constant<int, kOuterGroups>());
  use(std::integral_constant<int, 1>());
}

// From this many rows on, transposing keys costs less than adding lanes.
constexpr int kFewestRowsToTranspose = 8;

// The base of the weights: kExponent times a score is the exponent.
struct PowersOfE {
  static constexpr float kExponent = 1;
  static HWY_INLINE Vector of_nonpositive(Vector x) { return exp_of_nonpositive(Floats(), x); }
};
struct PowersOfTwo {
  static constexpr float kExponent = kLog2OfE;
  static HWY_INLINE Vector of_nonpositive(Vector x) { return exp2_of_nonpositive(Floats(), x); }
};

// Replaces the scores of kRows rows from `row` on, for a block's first num_keys, by weights, and updates the rows'
// maxima, sums and outputs. Each row sees at least one key. `slot` is the first row's. Several rows interleave, because
// each waits for its maximum, then its powers, then its sum.
template <class Products, int kRows>
HWY_NOINLINE void weigh_rows(typename Products::Scratch& scratch, int row, int slot, const Visible (&seen)[kRows],
                             int num_keys, int width) {
  using Powers = typename Products::Powers;
  const Floats d;
  float before[kRows], largest[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float* scores = scratch.scores[slot + r];
    std::fill(scores, scores + seen[r].begin, -std::numeric_limits<float>::infinity());
    std::fill(scores + seen[r].end, scores + num_keys, -std::numeric_limits<float>::infinity());
    before[r] = scratch.largest[row + r];
    Vector maxima = hn::Set(d, before[r]);
    for (int key = 0; key < num_keys; key += kWidth) {
      const Vector score = load(scores + key);
      maxima = larger(d, score, maxima);  // skips NaN, whose weight becomes NaN
    }
    largest[r] = hn::GetLane(hn::MaxOfLanes(d, maxima));
  }

  Vector lanes[kRows][kRegisters];
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kRegisters; ++i) lanes[r][i] = hn::Zero(d);
  for (int key = 0; key < num_keys; key += kLanes) {
    for (int i = 0; i < kRegisters; ++i) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Vector score = load(scratch.scores[slot + r] + key + i * kWidth);
        const Vector weight = Powers::of_nonpositive(hn::Sub(score, hn::Set(d, largest[r])));
        Products::put_weights(scratch, slot + r, key + i * kWidth, weight);
        lanes[r][i] = hn::Add(lanes[r][i], weight);
      }
    }
  }

#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float block_sum = sum_lanes(lanes[r]);
    float& sum = scratch.sum[row + r];
    scratch.largest[row + r] = largest[r];
    if (largest[r] == before[r]) {  // exp(0) is 1, and multiplying by 1 changes nothing
      sum += block_sum;
      continue;
    }
    const Vector correction = Powers::of_nonpositive(hn::Sub(hn::Set(d, before[r]), hn::Set(d, largest[r])));
    sum = hn::GetLane(hn::MulAdd(hn::Set(d, sum), correction, hn::Set(d, block_sum)));
    float* o = scratch.o + (row + r) * width;
    for (int i = 0; i < width; i += kWidth) hn::StoreU(hn::Mul(load(o + i), correction), d, o + i);
  }
}

// weigh_rows for a group. `seen` has the keys of the block that the row of each slot sees, perhaps none.
template <class Products>
HWY_NOINLINE void weigh_group(typename Products::Scratch& scratch, const RowGroup& rows, const Visible* seen,
                              int num_keys, int width) {
  constexpr int kTogether = 4;
  for (int row = rows.begin; row < rows.end; row += kTogether) {
    const int slot = rows.slot(row), count = std::min(kTogether, rows.end - row);
    if (count == kTogether && std::all_of(seen + slot, seen + slot + kTogether, [](Visible v) { return v.any(); })) {
      weigh_rows<Products, kTogether>(scratch, row, slot, {seen[slot], seen[slot + 1], seen[slot + 2], seen[slot + 3]},
                                      num_keys, width);
      continue;
    }
    for (int r = 0; r < count; ++r)
      if (seen[slot + r].any()) weigh_rows<Products, 1>(scratch, row + r, slot + r, {seen[slot + r]}, num_keys, width);
  }
}

// o[row] += weights[row][j] * value j for j in [begin, end), in order, for kRows rows from `row` on and kGroups groups
// of sixteen columns.
template <int kRows, int kGroups>
HWY_INLINE void add_columns(Scratch& scratch, int row, int slot, const Keys& keys, int begin, int end, int column) {
  constexpr int kParts = kGroups * kRegisters;
  OuterSums<kRows, kParts> o;
  const float* weights[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    weights[r] = scratch.scores[slot + r] + begin;
#pragma GCC unroll 4 * kUnroll
    for (int p = 0; p < kParts; ++p) o.sums[r][p] = load(scratch.o + (row + r) * keys.width + column + p * kWidth);
  }
  o.add(weights, 1, scratch.kv + (begin - keys.first) * keys.width + column, keys.width, end - begin);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
    for (int p = 0; p < kParts; ++p)
      hn::StoreU(o.sums[r][p], Floats(), scratch.o + (row + r) * keys.width + column + p * kWidth);
}

// All columns. A single row takes four groups at a time to hide the latency of additions, which takes eight independent
// sums; so do four rows where registers hold sixteen sums beside the operands.
template <int kRows>
HWY_INLINE void add_values(Scratch& scratch, int row, int slot, const Keys& keys, int begin, int end) {
  constexpr int kGroups = kRows == 1 ? 4 : kOuterGroups;
  int column = 0;
  for (; column + kGroups * kLanes <= keys.columns; column += kGroups * kLanes)
    add_columns<kRows, kGroups>(scratch, row, slot, keys, begin, end, column);
  for (; column < keys.columns; column += kLanes) add_columns<kRows, 1>(scratch, row, slot, keys, begin, end, column);
}

// Distributes the values of `keys` to the rows of a group that see them: calls add(number of rows as a constant, row,
// begin, end) for kOuterRows rows from `row` on that all see values [begin, end), and for one row for values that only
// some of them see. `seen` has the visible keys of the row of each slot. Ranges for several rows begin and end at
// multiples of kKeysAtOnce. Each row gets its keys in order.
template <int kKeysAtOnce, class Add>
HWY_INLINE void share_values(const RowGroup& rows, const Keys& keys, const Visible* seen, const Add& add) {
  const auto add_to_row = [&](int row, int begin, int end) {
    if (begin < end) add(std::integral_constant<int, 1>(), row, begin, end);
  };
  for (int row = rows.begin; row < rows.end; row += kOuterRows) {
    const int count = std::min(kOuterRows, rows.end - row);
    const auto seen_begin = [&](int r) { return std::max(seen[rows.slot(row + r)].begin, keys.begin); };
    const auto seen_end = [&](int r) { return std::min(seen[rows.slot(row + r)].end, keys.end); };
    const int begin = round_up(seen_begin(count - 1), kKeysAtOnce);
    const int end = seen_end(0) / kKeysAtOnce * kKeysAtOnce;  // as far as all of them see
    if (count < kOuterRows || begin >= end) {
      for (int r = 0; r < count; ++r) add_to_row(row + r, seen_begin(r), seen_end(r));
      continue;
    }
    for (int r = 0; r < count; ++r) add_to_row(row + r, seen_begin(r), begin);
    add(std::integral_constant<int, kOuterRows>(), row, begin, end);
    for (int r = 0; r < count; ++r) add_to_row(row + r, end, seen_end(r));
  }
}

// Float32 multiplications for attend() (attention_loop-inl.h); keys and values are widened to float32.
template <class W>
struct WidenedProducts {
  using Element = W;
  using Powers = PowersOfE;
  using Scratch = HWY_NAMESPACE::Scratch;

  static HWY_INLINE void take_query(Scratch& scratch, int row, int num_rows, const float* q, float scale, int head_dim,
                                    int width) {
    scratch.scale = scale;
    scratch.many_rows = num_rows >= kFewestRowsToTranspose;
    widen(q, head_dim, width, scratch.q + row * width);
    if (scratch.many_rows) reorder_query(scratch.q + row * width, width);
  }
  static HWY_INLINE void take_key_or_value(Scratch& scratch, int idx, const W* from, int head_dim, int width) {
    widen(from, head_dim, width, scratch.kv + idx * width);
  }
  static HWY_NOINLINE void prepare_keys(Scratch& scratch, const Keys& keys, int num_keys) {
    if (!scratch.many_rows) return;
    clear_unread(scratch.kv, keys, num_keys);
    with_groups_for(num_keys, [&](auto groups) {
      transpose_keys<groups * kLanes>(scratch.kv, scratch.transposed, num_keys, keys.width,
                                      [&](int d) { return place_of(d, keys.width); });
    });
  }
  static HWY_NOINLINE void score(Scratch& scratch, const RowGroup& rows, const Keys& keys, int num_keys) {
    if (!scratch.many_rows) return score_few(scratch, rows, keys);
    with_groups_for(num_keys, [&](auto groups) { score_transposed<groups>(scratch, rows, keys, num_keys); });
  }
  static HWY_INLINE void put_weights(Scratch& scratch, int slot, int key, Vector weights) {
    hn::StoreU(weights, Floats(), scratch.scores[slot] + key);
  }
  static HWY_INLINE void prepare_values(Scratch&, const Keys&) {}
  static HWY_NOINLINE void add_values(Scratch& scratch, const RowGroup& rows, const Keys& keys, const Visible* seen) {
    share_values<1>(rows, keys, seen, [&](auto num_rows, int row, int begin, int end) {
      HWY_NAMESPACE::add_values<num_rows>(scratch, row, rows.slot(row), keys, begin, end);
    });
  }

 private:
  // Few rows: dot products with keys in place, four at a time. scores[row][j] = dot(q[row], key j) * scale.
  static HWY_NOINLINE void score_few(Scratch& scratch, const RowGroup& rows, const Keys& keys) {
    for (int key = keys.begin; key < keys.end; key += 4) {
      const float* k[4];  // keys beyond the end repeat the last one
      for (int i = 0; i < 4; ++i) k[i] = scratch.kv + (std::min(key + i, keys.end - 1) - keys.first) * keys.width;
      for (int row = rows.begin; row < rows.end; ++row) {
        const float* const q[1] = {scratch.q + row * keys.width};
        DotSums<Widened<float>, 4, 1, kRegisters> sums;
        sums.clear();
        sums.add(k, q, keys.width / kLanes, 0);
        const Vector(*const lanes[4])[kRegisters] = {&sums.lanes[0][0], &sums.lanes[1][0], &sums.lanes[2][0],
                                                     &sums.lanes[3][0]};
        float scores[4];
        store_sums_of_four(lanes, scratch.scale, scores);
        std::copy_n(scores, std::min(4, keys.end - key), scratch.scores[rows.slot(row)] + key);
      }
    }
  }
};

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
