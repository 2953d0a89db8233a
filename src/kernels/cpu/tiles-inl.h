// The two register tiles of the CPU operators, which use each load for several sums. DotSums keeps the sixteen lanes of
// a dot product along a register and reads rows in place. OuterSums keeps one sum per lane and needs no horizontal
// additions, but a transposed operand. Included once per target, after hwy/highway.h; the include guard is Highway's
// idiom.
#if defined(HEDDLE_KERNELS_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_TILES_INL_H_
#undef HEDDLE_KERNELS_TILES_INL_H_
#else
#define HEDDLE_KERNELS_TILES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// A compiler barrier: GCC would hoist loads and run out of registers.
HWY_INLINE void keep_order() {
  asm volatile("" ::: "memory");
}

// A Format says how a row of W and a row of x are multiplied:
//   Weight, X      their elements in memory
//   Packed         elements that loops read often: all of x, and W where there are many tokens
//   kChunk         elements that the sixteen lanes take at once
//   kPhases        multiplications per lane and chunk, one after the other
//   pack()         converts whole chunks of Weight or X to Packed, with as many elements
//   operand()      loads a register of Weight or Packed: `part` (lanes [part * kWidth, ...)) and `phase` of a chunk
//                  in the layout Packing::chunks
//   multiply_add() adds the products of two operands to the lanes
//   kRowByRow      whether the fewest tokens read rows one after the other and not side by side

// The layout of a tile's elements: chunk after chunk, as in memory; chunks of all tokens together, read through one
// pointer; or planes, for tiles that process one register of the lanes at a time: that register's part of all chunks,
// then the next register's, so that each cache line is used whole.
enum class Packing : std::uint8_t { chunks, together, planes };

// What a tile prefetches into the L2 cache: nothing; each row some bytes further on; the tile's bytes some bytes
// further on, in the order of memory; or as much of two other rows as the tile reads of one.
enum class Fetch { nothing, along_rows, in_order, two_rows };

// What to prefetch: a distance, or two rows.
struct Ahead {
  std::ptrdiff_t bytes = 0;
  const void* rows[2] = {};
};

// Prefetches a cache line into the L2 cache. An address beyond the allocation has no effect.
HWY_INLINE void fetch(const void* from, std::ptrdiff_t ahead) {
  const auto address = reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(ahead);
  __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
}

// x is float32; W is float32 or widened to it. Lane i takes element i of each 16.
template <class W>
struct Widened {
  using Weight = W;
  using X = float;
  using Packed = float;
  static constexpr int kChunk = kLanes;
  static constexpr int kPhases = 1;
  static constexpr bool kRowByRow = false;

  template <class T>
  static HWY_INLINE void pack(const T* from, std::int64_t num_chunks, float* to) {
    for (std::int64_t k = 0; k < num_chunks * kChunk; k += kWidth) hn::StoreU(load(from + k), Floats(), to + k);
  }
  template <class T>
  static HWY_INLINE Vector operand(const T* chunk, int part, int) {
    return load(chunk + part * kWidth);
  }
  static HWY_INLINE Vector multiply_add(Vector w, Vector x, Vector sum) { return add_product(sum, w, x); }
};

// x and W are bfloat16. Lane i takes elements 2i + 1 and then 2i of each 32, which are its 32 bits in memory: the upper
// half is a float32 after clearing the lower, the lower half after a shift. Nothing needs a shuffle.
struct Pairs {
  using Weight = bfloat16;
  using X = bfloat16;
  using Packed = float;  // per chunk the odd elements, then the even ones
  static constexpr int kChunk = 2 * kLanes;
  static constexpr int kPhases = 2;
  static constexpr bool kRowByRow = false;

  static HWY_INLINE void pack(const bfloat16* from, std::int64_t num_chunks, float* to) {
    for (std::int64_t k = 0; k < num_chunks * kChunk; k += kChunk) {
#pragma GCC unroll 2
      for (int phase = 0; phase < kPhases; ++phase) {
#pragma GCC unroll kUnroll
        for (int part = 0; part < kRegisters; ++part)
          hn::StoreU(operand(from + k, part, phase), Floats(), to + k + phase * kLanes + part * kWidth);
      }
    }
  }
  static HWY_INLINE Vector operand(const bfloat16* chunk, int part, int phase) {
    const auto pairs = load_pairs(chunk + 2 * part * kWidth);
    return hn::BitCast(Floats(), phase == 0 ? upper_half(pairs) : hn::ShiftLeft<16>(pairs));
  }
  static HWY_INLINE Vector operand(const float* chunk, int part, int phase) {
    return load(chunk + phase * kLanes + part * kWidth);
  }
  static HWY_INLINE Vector multiply_add(Vector w, Vector x, Vector sum) {
    return add_product(sum, w, x);
  }

 private:
  using PairBits = hn::Rebind<std::uint32_t, Floats>;

  static HWY_INLINE hn::Vec<PairBits> upper_half(hn::Vec<PairBits> pairs) {
#if HWY_TARGET == HWY_AVX2
    // The sums and operands take all 16 registers, so none is left for a mask.
    auto lower = hn::ShiftRight<16>(pairs);
    asm("" : "+x"(lower.raw));  // or GCC makes one operation of two, and it needs the mask
    return hn::ShiftLeft<16>(lower);
#else
    return hn::And(pairs, hn::Set(PairBits(), 0xffff0000u));
#endif
  }

  static HWY_INLINE hn::Vec<PairBits> load_pairs(const bfloat16* pairs) {
    const PairBits d;
#if HWY_TARGET == HWY_SCALAR
    std::uint32_t pair;
    std::memcpy(&pair, pairs, sizeof pair);
    return hn::Set(d, pair);
#else
    const hn::Repartition<std::uint16_t, decltype(d)> d16;
    return hn::BitCast(d, hn::LoadU(d16, &pairs->bits));
#endif
  }
};

// Registers [part, part + kParts) of the lanes of kRows x kTokens dot products.
template <class Format, int kRows, int kTokens, int kParts>
struct DotSums {
  Vector lanes[kRows][kTokens][kParts];

  HWY_INLINE DotSums() {}  // an implicit one would not be compiled for the target

  HWY_INLINE void clear() {
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 4
        for (int p = 0; p < kParts; ++p) lanes[r][t][p] = hn::Zero(Floats());
  }

  // All lanes of a row; its tokens' lanes are contiguous.
  HWY_INLINE void load_row(int r, const float* from) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) lanes[r][t][p] = load(from + t * kLanes + p * kWidth);
  }
  HWY_INLINE void store_row(int r, float* to) const {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 4
      for (int p = 0; p < kParts; ++p) hn::StoreU(lanes[r][t][p], Floats(), to + t * kLanes + p * kWidth);
  }

  // Adds the products of `num_chunks` chunks. In planes, w and x are in that of `part`, and kParts is 1; x in the
  // layout `together` begins with the first token's. A Fetch prefetches what the hardware does not predict, a jump to
  // another row; without it, reading several rows at once does not reach the bandwidth of one stream either.
  template <Packing kW = Packing::chunks, Packing kX = Packing::chunks, Fetch kFetch = Fetch::nothing, class W>
  HWY_INLINE void add(const W* const (&w)[kRows], const typename Format::Packed* const (&x)[kTokens],
                      std::int64_t num_chunks, int part, const Ahead& ahead = {}) {
    // Copies, which the compiler may keep in registers across stores to memory.
    const W* rows[kRows];
    const typename Format::Packed* tokens[kTokens];
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) rows[r] = w[r];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) tokens[t] = x[t];
    for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      constexpr auto kBytes = static_cast<std::ptrdiff_t>(Format::kChunk * sizeof(typename Format::Weight));
      if constexpr (kFetch == Fetch::along_rows) {
#pragma GCC unroll 24
        for (int r = 0; r < kRows; ++r) fetch(rows[r], chunk * kBytes + ahead.bytes);
      }
      if constexpr (kFetch == Fetch::in_order) {
#pragma GCC unroll 24
        for (int r = 0; r < kRows; ++r) fetch(rows[0], (chunk * kRows + r) * kBytes + ahead.bytes);
      }
      if constexpr (kFetch == Fetch::two_rows) {
        fetch(ahead.rows[0], chunk * kBytes);
        fetch(ahead.rows[1], chunk * kBytes);
      }
#pragma GCC unroll 2
      for (int phase = 0; phase < Format::kPhases; ++phase) {
#pragma GCC unroll 4
        for (int p = 0; p < kParts; ++p) {
          if (phase + p > 0) keep_order();
          decltype(operand<kW>(rows[0], chunk, part + p, phase)) row[kRows];
#pragma GCC unroll 24
          for (int r = 0; r < kRows; ++r) row[r] = operand<kW>(rows[r], chunk, part + p, phase);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            const auto token = in_register(token_operand<kX>(tokens, t, chunk, part + p, phase));
#pragma GCC unroll 24
            for (int r = 0; r < kRows; ++r) lanes[r][t][p] = Format::multiply_add(row[r], token, lanes[r][t][p]);
          }
        }
      }
    }
  }

  // The same, one row after the other, with rows in memory.
  template <Packing kX, class W>
  HWY_INLINE void add_row_by_row(const W* const (&w)[kRows], const typename Format::Packed* const (&x)[kTokens],
                                 std::int64_t num_chunks) {
    static_assert(kRegisters == 1 && Format::kPhases == 1);
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
      Vector sums[kTokens];
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sums[t] = lanes[r][t][0];
#pragma GCC unroll 4
      for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk) {
        const auto row = operand<Packing::chunks>(w[r], chunk, 0, 0);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t)
          sums[t] = Format::multiply_add(row, token_operand<kX>(x, t, chunk, 0, 0), sums[t]);
      }
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) lanes[r][t][0] = sums[t];
    }
  }

 private:
  template <Packing kX, class T>
  static HWY_INLINE auto token_operand(const T* const (&tokens)[kTokens], int t, std::int64_t chunk, int part,
                                       int phase) {
    if constexpr (kX == Packing::together)
      return Format::operand(tokens[0] + (chunk * kTokens + t) * Format::kChunk, part, phase);
    else
      return operand<kX>(tokens[t], chunk, part, phase);
  }

  template <Packing kPacking, class T>
  static HWY_INLINE auto operand(const T* from, std::int64_t chunk, int part, int phase) {
    if constexpr (kPacking == Packing::planes) {
      static_assert(kParts == 1);
      return load(from + (chunk * Format::kPhases + phase) * kWidth);
    } else {
      return Format::operand(from + chunk * Format::kChunk, part, phase);
    }
  }
};

// The dot product of README.md.
HWY_INLINE float dot(const float* a, const float* b, std::int64_t n) {
  using Sums = DotSums<Widened<float>, 1, 1, kRegisters>;
  const std::int64_t whole = n / kLanes * kLanes;
  Sums sums;
  sums.clear();
  const float* rows[1] = {a};
  const float* tokens[1] = {b};
  sums.add(rows, tokens, whole / kLanes, 0);
  if (whole < n) {
    float row[kLanes] = {}, token[kLanes] = {};
    std::memcpy(row, a + whole, static_cast<std::size_t>(n - whole) * sizeof(float));
    std::memcpy(token, b + whole, static_cast<std::size_t>(n - whole) * sizeof(float));
    rows[0] = row;
    tokens[0] = token;
    sums.add(rows, tokens, 1, 0);
  }
  return sum_lanes(sums.lanes[0][0]);
}

// kRows rows of kParts registers of sums.
template <int kRows, int kParts>
struct OuterSums {
  Vector sums[kRows][kParts];

  HWY_INLINE OuterSums() {}  // an implicit one would not be compiled for the target

  HWY_INLINE void clear() {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
      for (int p = 0; p < kParts; ++p) sums[r][p] = hn::Zero(Floats());
  }

  HWY_INLINE void store(float (&to)[kRows][kParts * kWidth]) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
      for (int p = 0; p < kParts; ++p) hn::StoreU(sums[r][p], Floats(), to[r] + p * kWidth);
  }

  HWY_INLINE void store(float* const (&to)[kRows], int column, float scale) const {
    const Vector factor = hn::Set(Floats(), scale);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
      for (int p = 0; p < kParts; ++p) hn::StoreU(hn::Mul(sums[r][p], factor), Floats(), to[r] + column + p * kWidth);
  }

  HWY_INLINE void add_to(const float (&from)[kRows][kParts * kWidth]) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4 * kUnroll
      for (int p = 0; p < kParts; ++p) sums[r][p] = hn::Add(load(from[r] + p * kWidth), sums[r][p]);
  }

  // sums[r][column] += a[r][i * a_step] * b[i * b_step + column] for i = 0, 1, ..., count - 1, in order.
  HWY_INLINE void add(const float* const (&a)[kRows], std::ptrdiff_t a_step, const float* b, std::ptrdiff_t b_step,
                      int count) {
    std::ptrdiff_t at = 0;
    for (int i = 0; i < count; ++i, at += a_step, b += b_step) add_one(a, at, b);
  }

  // The same with a_step 1 for i = 1, 0, 3, 2, ..., 2 * num_pairs - 1, 2 * num_pairs - 2: the order of AVX512-BF16.
  HWY_INLINE void add_pairs(const float* const (&a)[kRows], const float* b, std::ptrdiff_t b_step, int num_pairs) {
    for (int i = 0; i < 2 * num_pairs; i += 2, b += 2 * b_step) {
      add_one(a, i + 1, b + b_step);
      add_one(a, i, b);
    }
  }

 private:
  HWY_INLINE void add_one(const float* const (&a)[kRows], std::ptrdiff_t at, const float* b) {
    Vector columns[kParts];
#pragma GCC unroll 4 * kUnroll
    for (int p = 0; p < kParts; ++p) columns[p] = in_register(load(b + p * kWidth));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vector factor = hn::Set(Floats(), a[r][at]);
#pragma GCC unroll 4 * kUnroll
      for (int p = 0; p < kParts; ++p) sums[r][p] = hn::MulAdd(factor, columns[p], sums[r][p]);
    }
  }
};

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
