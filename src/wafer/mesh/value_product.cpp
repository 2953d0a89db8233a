#include "wafer/mesh/value_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "wafer/mesh/value_product.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::mesh::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Places = hn::CappedTag<float, 16>;
constexpr int kPlaces = static_cast<int>(hn::MaxLanes(Places()));  // per register

// c[m0 + i][n0 + j], i < M, j < N, for the kPlaces places from `x` on: the sums stay in registers over all k.
template <int M, int N>
HWY_INLINE void add_block(const TileProduct& p, int m0, int n0, std::int64_t x) {
  const Places d;
  float* c = p.c + (m0 * std::int64_t{p.n} + n0) * p.c_pitch + x;
  hn::Vec<Places> sums[M][N];
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) sums[i][j] = hn::LoadU(d, c + (i * std::int64_t{p.n} + j) * p.c_pitch);
  const float* a = p.a + m0 * std::int64_t{p.k} * p.a_pitch + x;
  const float* b = p.b + n0 * p.b_step_n + x;
  for (int k = 0; k < p.k; ++k, a += p.a_pitch, b += p.b_step_k) {
    hn::Vec<Places> right[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) right[j] = hn::LoadU(d, b + j * p.b_step_n);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      const auto left = hn::LoadU(d, a + i * std::int64_t{p.k} * p.a_pitch);
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) sums[i][j] = hn::MulAdd(left, right[j], sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) hn::StoreU(sums[i][j], d, c + (i * std::int64_t{p.n} + j) * p.c_pitch);
}

template <int M>
HWY_INLINE void add_rows(const TileProduct& p, int m0, std::int64_t x) {
  int n = 0;
  for (; n + 2 <= p.n; n += 2) add_block<M, 2>(p, m0, n, x);
  if (n < p.n) add_block<M, 1>(p, m0, n, x);
}

// A tile of one row uses every element of b once, so b is read in memory order.
void add_row_product(const TileProduct& p) {
  const Places d;
  for (int k = 0; k < p.k; ++k)
    for (int n = 0; n < p.n; ++n) {
      const float* a = p.a + k * p.a_pitch;
      const float* b = p.b + k * p.b_step_k + n * p.b_step_n;
      float* c = p.c + n * p.c_pitch;
      for (std::int64_t x = 0; x < p.places; x += kPlaces)
        hn::StoreU(hn::MulAdd(hn::LoadU(d, a + x), hn::LoadU(d, b + x), hn::LoadU(d, c + x)), d, c + x);
    }
}

// Other tiles: all blocks for kPlaces places, then the next places, so that the operands stay in the L1 cache.
void add_tile_product_simd(const TileProduct& p) {
  if (p.m == 1) return add_row_product(p);
  for (std::int64_t x = 0; x < p.places; x += kPlaces) {
    int m = 0;
    for (; m + 4 <= p.m; m += 4) add_rows<4>(p, m, x);
    switch (p.m - m) {
      case 3:
        add_rows<3>(p, m, x);
        break;
      case 2:
        add_rows<2>(p, m, x);
        break;
      case 1:
        add_rows<1>(p, m, x);
        break;
      default:
        break;
    }
  }
}

}  // namespace heddle::mesh::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::mesh {
namespace {

HWY_EXPORT(add_tile_product_simd);

}  // namespace

void add_tile_product(const TileProduct& product) {
  HWY_DYNAMIC_DISPATCH(add_tile_product_simd)(product);
}

}  // namespace heddle::mesh
#endif
