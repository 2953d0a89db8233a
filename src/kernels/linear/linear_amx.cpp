#include "kernels/linear/linear_amx.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#ifndef __clang__  // GCC 12 warns of its own undefined registers, and clang of the name of that warning
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "kernels/linear/linear_tiles.h"

namespace heddle {
namespace {

// Inline assembly, so that no other function is compiled with AMX enabled and each statement lists its operands.
struct AmxUnit {
  static void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
  static void release() { asm volatile("tilerelease"); }

  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const void* from, std::ptrdiff_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to, std::ptrdiff_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSums, int kLeft, int kRight>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
  }

  // Four quarters of a register come from four rows, four apart; what remains is to transpose 4 x 4 words in each
  // quarter.
  __attribute__((target("avx512f,avx512dq"), noinline)) static void transpose(const std::byte* const (&rows)[kTileRows],
                                                                              bfloat16* to) {
    const auto quarter = [](const std::byte* row, int i) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row) + i);
    };
    for (int i = 0; i < 4; ++i) {
      __m512i r[4];
      for (int j = 0; j < 4; ++j) {
        __m512i v = _mm512_castsi128_si512(quarter(rows[j], i));
        v = _mm512_mask_broadcast_i32x4(v, 0x00f0, quarter(rows[j + 4], i));
        v = _mm512_mask_broadcast_i32x4(v, 0x0f00, quarter(rows[j + 8], i));
        r[j] = _mm512_mask_broadcast_i32x4(v, 0xf000, quarter(rows[j + 12], i));
      }
      const __m512i low01 = _mm512_unpacklo_epi32(r[0], r[1]), high01 = _mm512_unpackhi_epi32(r[0], r[1]);
      const __m512i low23 = _mm512_unpacklo_epi32(r[2], r[3]), high23 = _mm512_unpackhi_epi32(r[2], r[3]);
      auto* words = reinterpret_cast<__m512i*>(to) + 4 * i;
      _mm512_storeu_si512(words, _mm512_unpacklo_epi64(low01, low23));
      _mm512_storeu_si512(words + 1, _mm512_unpackhi_epi64(low01, low23));
      _mm512_storeu_si512(words + 2, _mm512_unpacklo_epi64(high01, high23));
      _mm512_storeu_si512(words + 3, _mm512_unpackhi_epi64(high01, high23));
    }
  }

  static void fetch(const std::byte* from) { __builtin_prefetch(from, 0, 2); }
};

// Linux saves tile registers only for processes that have requested them (ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA).
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBfloat16 = 1u << 22, kTiles = 1u << 24;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  return (d & kBfloat16) != 0 && (d & kTiles) != 0 && has_avx512 && may_use_tiles();
}

}  // namespace

LinearRows linear_rows_amx() {
  static const bool has = has_tiles();
  return has ? TiledLinear<AmxUnit>::compute : nullptr;
}

}  // namespace heddle

#else

namespace heddle {

LinearRows linear_rows_amx() {
  return nullptr;
}

}  // namespace heddle

#endif
