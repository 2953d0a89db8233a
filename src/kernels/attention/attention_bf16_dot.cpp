#include "kernels/attention/attention_bf16_dot.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "kernels/linear/linear_bf16_dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/attention/attention_bf16_dot.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#pragma push_macro("HWY_TARGET_STR")
#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>
// From here on, functions of this target are compiled with one instruction more than Highway's target has.
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"
#endif
#include "kernels/attention/attention-inl.h"
#include "kernels/attention/attention_loop-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Like RoundedProducts (attention_rounded-inl.h), with both products of a pair in one instruction. A pair is 32 bits:
// two neighbouring elements of a query or key, the weights of two keys, or the values of two keys in one column.
struct PairProducts {
  using Element = bfloat16;
  using Powers = PowersOfTwo;

  struct Scratch : Softmax {
    static constexpr int kBeyond = kLanes;  // elements read, but not used, after the last row
    alignas(64) bfloat16 q[kRowFloats];
    alignas(64) bfloat16 kv[kKeyFloats + kBeyond];
    alignas(64) std::uint32_t keys[kKeyFloats / 2];    // [num_keys / 16, pairs, 16]
    alignas(64) std::uint32_t values[kKeyFloats / 2];  // [pairs, width]
    alignas(64) bfloat16 weights[kMaxGroupRows][kBlockKeys];
  };

  static HWY_INLINE void take_query(Scratch& scratch, int row, int, const float* q, float scale, int head_dim,
                                    int width) {
    bfloat16* to = scratch.q + row * width;
    const float factor = scale * Powers::kExponent;
    int i = 0;
    for (; i + kWidth <= head_dim; i += kWidth) store(hn::Mul(load(q + i), hn::Set(Floats(), factor)), to + i);
    for (; i < head_dim; ++i) to[i] = to_bfloat16(q[i] * factor);
    for (; i < width; ++i) to[i] = {};
  }
  static HWY_INLINE void take_key_or_value(Scratch& scratch, int idx, const bfloat16* from, int head_dim, int width) {
    bfloat16* to = scratch.kv + idx * width;
    int i = 0;
    for (; i + 2 * kLanes <= head_dim; i += 2 * kLanes) _mm512_storeu_si512(to + i, _mm512_loadu_si512(from + i));
    for (; i < head_dim; ++i) to[i] = from[i];
    for (; i < width; ++i) to[i] = {};
  }

  static HWY_NOINLINE void prepare_keys(Scratch& scratch, const Keys& keys, int num_keys) {
    clear_unread(scratch.kv, keys, num_keys);
    transpose_keys_by_pairs(scratch, num_keys, keys.width);
  }
  static HWY_NOINLINE void score(Scratch& scratch, const RowGroup& rows, const Keys& keys, int num_keys) {
    int row = rows.begin;
    for (; row + kOuterRows <= rows.end; row += kOuterRows)
      score_rows<kOuterRows>(scratch, row, rows.slot(row), keys, num_keys);
    for (; row < rows.end; ++row) score_rows<1>(scratch, row, rows.slot(row), keys, num_keys);
  }

  static HWY_INLINE void put_weights(Scratch& scratch, int slot, int key, Vector weights) {
    const __m256bh rounded = _mm512_cvtneps_pbh(weights.raw);
    _mm256_store_si256(reinterpret_cast<__m256i*>(scratch.weights[slot] + key), reinterpret_cast<__m256i>(rounded));
  }

  static HWY_NOINLINE void prepare_values(Scratch& scratch, const Keys& keys) { interleave_values(scratch, keys); }
  static HWY_NOINLINE void add_values(Scratch& scratch, const RowGroup& rows, const Keys& keys, const Visible* seen) {
    share_values<2>(rows, keys, seen, [&](auto num_rows, int row, int begin, int end) {
      const int slot = rows.slot(row);
      if constexpr (num_rows > 1) return add_whole_pairs<num_rows>(scratch, row, slot, keys, begin, end);
      const int first_pair = round_up(begin, 2), end_pair = end / 2 * 2;
      if (begin < first_pair) add_half_of_pair(scratch, row, slot, keys, begin);
      if (first_pair < end_pair) add_whole_pairs<1>(scratch, row, slot, keys, first_pair, end_pair);
      if (end_pair < end && end_pair >= begin) add_half_of_pair(scratch, row, slot, keys, end_pair);
    });
  }

 private:
  static HWY_INLINE __m512i pair_in_all_lanes(const bfloat16* pair) {
    std::int32_t bits;
    std::memcpy(&bits, pair, sizeof bits);
    return _mm512_set1_epi32(bits);
  }
  static HWY_INLINE Vector add_products(Vector sum, __m512i a, __m512i b) {
    return Vector{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b))};
  }

  // Transposes sixteen rows of sixteen 32-bit elements in place.
  static HWY_INLINE void transpose(__m512i (&rows)[16]) {
    __m512i twos[16], fours[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {  // interleaves elements of two rows
      twos[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
      twos[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {  // of four: fours[i + j] has element j of each group of four columns
      fours[i] = _mm512_unpacklo_epi64(twos[i], twos[i + 2]);
      fours[i + 1] = _mm512_unpackhi_epi64(twos[i], twos[i + 2]);
      fours[i + 2] = _mm512_unpacklo_epi64(twos[i + 1], twos[i + 3]);
      fours[i + 3] = _mm512_unpackhi_epi64(twos[i + 1], twos[i + 3]);
    }
#pragma GCC unroll 16
    for (int j = 0; j < 4; ++j) {  // then columns j, j + 4, j + 8 and j + 12 of all sixteen
      const __m512i even_low = _mm512_shuffle_i32x4(fours[j], fours[j + 4], 0x88);
      const __m512i odd_low = _mm512_shuffle_i32x4(fours[j], fours[j + 4], 0xdd);
      const __m512i even_high = _mm512_shuffle_i32x4(fours[j + 8], fours[j + 12], 0x88);
      const __m512i odd_high = _mm512_shuffle_i32x4(fours[j + 8], fours[j + 12], 0xdd);
      rows[j] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
      rows[j + 4] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
      rows[j + 8] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
      rows[j + 12] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
    }
  }

  static HWY_INLINE void transpose_keys_by_pairs(Scratch& scratch, int num_keys, int width) {
    const int num_pairs = width / 2;  // a multiple of 8
    for (int key = 0; key < num_keys; key += kLanes) {
      std::uint32_t* to = scratch.keys + key * num_pairs;
      for (int first = 0; first < num_pairs; first += 16) {
        __m512i rows[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) rows[i] = _mm512_loadu_si512(scratch.kv + (key + i) * width + 2 * first);
        transpose(rows);
        const int count = std::min(16, num_pairs - first);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          if (i < count) _mm512_storeu_si512(to + (first + i) * kLanes, rows[i]);
      }
    }
  }

  template <int kRows>
  static HWY_INLINE void score_rows(Scratch& scratch, int row, int slot, const Keys& keys, int num_keys) {
    int key = 0;
    for (; key + 4 * kLanes <= num_keys; key += 4 * kLanes) score_keys<kRows, 4>(scratch, row, slot, keys, key);
    for (; key < num_keys; key += kLanes) score_keys<kRows, 1>(scratch, row, slot, keys, key);
  }
  template <int kRows, int kGroups>
  static HWY_INLINE void score_keys(Scratch& scratch, int row, int slot, const Keys& keys, int key) {
    const int num_pairs = keys.width / 2;
    const std::uint32_t* from = scratch.keys + key * num_pairs;
    const bfloat16* q = scratch.q + row * keys.width;
    Vector sums[kRows][kGroups];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) sums[r][g] = hn::Zero(Floats());
    for (int pair = 0; pair < num_pairs; ++pair, from += kLanes, q += 2) {
      __m512i columns[kGroups];
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) columns[g] = _mm512_load_si512(from + g * num_pairs * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m512i query = pair_in_all_lanes(q + r * keys.width);
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) sums[r][g] = add_products(sums[r][g], columns[g], query);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g)
        hn::StoreU(sums[r][g], Floats(), scratch.scores[slot + r] + keys.first + key + g * kLanes);
  }

  // Interleaves pairs of positions with a key that was read. At an edge the other half is never used.
  static HWY_INLINE void interleave_values(Scratch& scratch, const Keys& keys) {
    alignas(64) constexpr std::uint16_t kLower[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i lower = _mm512_load_si512(kLower), upper = _mm512_add_epi16(lower, _mm512_set1_epi16(16));
    const int width = keys.width;
    for (int key = (keys.begin - keys.first) / 2 * 2; key < keys.end - keys.first; key += 2) {
      const bfloat16* first = scratch.kv + key * width;
      std::uint32_t* to = scratch.values + key / 2 * width;
      for (int column = 0; column < keys.columns; column += 2 * kLanes) {
        const __m512i even = _mm512_loadu_si512(first + column), odd = _mm512_loadu_si512(first + width + column);
        _mm512_storeu_si512(to + column, _mm512_permutex2var_epi16(even, lower, odd));
        if (column + kLanes < keys.columns)
          _mm512_storeu_si512(to + column + kLanes, _mm512_permutex2var_epi16(even, upper, odd));
      }
    }
  }

  template <int kRows>
  static HWY_INLINE void add_whole_pairs(Scratch& scratch, int row, int slot, const Keys& keys, int begin, int end) {
    int column = 0;
    for (; column + 4 * kLanes <= keys.columns; column += 4 * kLanes)
      add_columns_of_pairs<kRows, 4>(scratch, row, slot, keys, begin, end, column);
    for (; column < keys.columns; column += kLanes)
      add_columns_of_pairs<kRows, 1>(scratch, row, slot, keys, begin, end, column);
  }
  template <int kRows, int kGroups>
  static HWY_INLINE void add_columns_of_pairs(Scratch& scratch, int row, int slot, const Keys& keys, int begin, int end,
                                              int column) {
    float* o = scratch.o + row * keys.width + column;
    Vector sums[kRows][kGroups];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) sums[r][g] = load(o + r * keys.width + g * kLanes);
    const std::uint32_t* values = scratch.values + (begin - keys.first) / 2 * keys.width + column;
    for (int key = begin; key < end; key += 2, values += keys.width) {
      __m512i columns[kGroups];
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) columns[g] = _mm512_loadu_si512(values + g * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m512i weights = pair_in_all_lanes(scratch.weights[slot + r] + key);
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) sums[r][g] = add_products(sums[r][g], columns[g], weights);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) hn::StoreU(sums[r][g], Floats(), o + r * keys.width + g * kLanes);
  }

  // Adds the value of one key of a pair whose other key is masked.
  static HWY_INLINE void add_half_of_pair(Scratch& scratch, int row, int slot, const Keys& keys, int key) {
    const __m512i half = _mm512_set1_epi32(static_cast<int>(key % 2 == 0 ? 0x0000ffffu : 0xffff0000u));
    const __m512i weights = _mm512_and_si512(half, pair_in_all_lanes(scratch.weights[slot] + key / 2 * 2));
    const std::uint32_t* values = scratch.values + (key - keys.first) / 2 * keys.width;
    float* o = scratch.o + row * keys.width;
    for (int column = 0; column < keys.columns; column += kLanes)
      hn::StoreU(add_products(load(o + column), _mm512_and_si512(half, _mm512_loadu_si512(values + column)), weights),
                 Floats(), o + column);
  }
};

void attend_part_of_pairs(const AttentionParams& params, const AttentionPart& part) {
  attend<PairProducts>(params, part);
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#pragma pop_macro("HWY_TARGET_STR")

#if HWY_ONCE
namespace heddle {

AttendPart attend_part_bf16_dot() {
#if HWY_TARGETS & HWY_AVX3
  if (bf16_dot_pays()) return N_AVX3::attend_part_of_pairs;
#endif
  return nullptr;
}

}  // namespace heddle
#endif
