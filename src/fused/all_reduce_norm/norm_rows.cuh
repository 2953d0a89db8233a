// The rows of a call: sums over ranks in rank order, the residual, the norm. Over a Group: on the CPU with the loops of
// kernels/, so that the bits are rmsnorm()'s; on a GPU by packets of 16 bytes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "device/group.h"
#include "device/one_lane.h"
#include "device/packet.cuh"
#include "device/packet_sum.cuh"
#include "device/unrolled.cuh"
#include "fused/shards.h"

namespace heddle {

// On the CPU: y = z / sqrt(mean(z^2) + eps) * weight, as rmsnorm().
void normalize_row_on_cpu(const float* z, const float* weight, std::int64_t hidden, float eps, void* y, DType dtype);

#ifdef __CUDACC__
// The sum over a group of whole warps, on every lane and in a fixed order; it is a barrier of the group. `sums` [64] lies
// in shared memory and belongs to the group alone. Two sums in a row use different halves: nobody writes to one half before
// all have read it, because a sum of the other half lies between.
template <Group G>
__device__ float sum_over_lanes(const G& group, float value, float* sums, int turn) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  float* const mine = sums + turn % 2 * 32;
  if (group.lane() % 32 == 0) mine[group.lane() / 32] = value;
  group.sync();
  float sum = 0;
  for (int warp = 0; warp < group.lanes() / 32; ++warp) sum += mine[warp];
  return sum;
}
#endif

template <class T>
inline constexpr DType kDType = sizeof(T) == 4                ? DType::float32
                                : std::is_same_v<T, bfloat16> ? DType::bfloat16
                                                              : DType::float16;

// X and Y: elements of x and y. Rows have no gaps.
template <class X, class Y>
struct NormRows {
  const std::byte* x;   // [num_tokens, hidden]
  float* residual;      // likewise
  const float* weight;  // [hidden]
  std::byte* y;         // [num_tokens, hidden]
  std::int64_t hidden;  // on a GPU a multiple of 8
  float eps;
  EvenShards rows;  // who owns which

  static constexpr int kElements = static_cast<int>(kPacketBytes / sizeof(X));

  HEDDLE_HOST_DEVICE std::size_t x_bytes() const { return static_cast<std::size_t>(hidden) * sizeof(X); }  // of a row
  HEDDLE_HOST_DEVICE std::size_t y_bytes() const { return static_cast<std::size_t>(hidden) * sizeof(Y); }
  HEDDLE_HOST_DEVICE std::size_t x_packets() const {
    return packets_of(x_bytes());
  }  // of a row, the last may be partial
  HEDDLE_HOST_DEVICE std::size_t y_packets() const { return packets_of(y_bytes()); }
  HEDDLE_HOST_DEVICE const std::byte* x_row(std::int64_t token) const {
    return x + static_cast<std::size_t>(token) * x_bytes();
  }
  HEDDLE_HOST_DEVICE std::byte* y_row(std::int64_t token) const {
    return y + static_cast<std::size_t>(token) * y_bytes();
  }

  // Adds packet i of a row's sum to the residual; returns the sum of squares of what it then holds.
  HEDDLE_HOST_DEVICE float add_packet(std::int64_t token, std::size_t i, const PacketSum<X>& sum) const {
#ifdef __CUDA_ARCH__
    float4 before[kElements / 4];
    load_residual(token, i, before);
    return add_to_residual(token, i, sum, before);
#else
    const auto first = static_cast<std::int64_t>(i) * kElements;
    float* const z = residual + token * hidden + first;
    unrolled<kElements>([&](auto k) {
      if (first + k < hidden) z[k] = sum.template value<k>() + z[k];
    });
    return 0;
#endif
  }

  // Adds the sum over ranks of a whole row, rank p's at source(p), to the residual; returns this lane's sum of squares.
  template <Group G, class Source>
  HEDDLE_HOST_DEVICE float add_row([[maybe_unused]] const G& group, int ranks, std::int64_t token,
                                   const Source& source) const {
    if constexpr (kOneLane<G>) {
      add_row_on_cpu(ranks, token, source);
      return 0;
    } else {
#ifdef __CUDA_ARCH__
      constexpr int kAtOnce = 4;  // ranks
      float squares = 0;
      each_packets(group, x_packets(), [&](const auto& at, const auto& exists) {
        float4 before[kTogether][kElements / 4];
        unrolled<kTogether>([&](auto t) {
          if (exists(t)) load_residual(token, at(t), before[t]);
        });
        PacketSum<X> sums[kTogether];
        for (int first = 0; first < ranks; first += kAtOnce) {
          Packet in[kTogether][kAtOnce] = {};
          unrolled<kTogether>([&](auto t) {
            unrolled<kAtOnce>([&](auto k) {
              if (exists(t) && first + k < ranks) in[t][k] = load_packet(source(first + k), at(t), x_bytes());
            });
          });
          unrolled<kTogether>([&](auto t) {
            unrolled<kAtOnce>([&](auto k) {
              if (first + k >= ranks) return;
              if (first + k == 0)
                sums[t].start(in[t][k]);
              else
                sums[t].add(in[t][k]);
            });
          });
        }
        unrolled<kTogether>([&](auto t) {
          if (exists(t)) squares += add_to_residual(token, at(t), sums[t], before[t]);
        });
      });
      return squares;
#else
      return 0;
#endif
    }
  }

  // Writes the row of y from the residual, of which each lane gives the squares that it has summed, and calls emit(i,
  // packet i of it). A barrier of the group, whose number of rows so far is `turn`.
  template <Group G, class Emit>
  HEDDLE_HOST_DEVICE void norm_row([[maybe_unused]] const G& group, std::int64_t token, [[maybe_unused]] float squares,
                                   [[maybe_unused]] float* sums, [[maybe_unused]] int turn, const Emit& emit) const {
    if constexpr (kOneLane<G>) {
      normalize_row_on_cpu(residual + token * hidden, weight, hidden, eps, y_row(token), kDType<Y>);
      for (std::size_t i = 0; i < y_packets(); ++i) emit(i, load_packet(y_row(token), i, y_bytes()));
    } else {
#ifdef __CUDA_ARCH__
      const float total = sum_over_lanes(group, squares, sums, turn);
      const float factor = 1.0f / sqrtf(total / static_cast<float>(hidden) + eps);
      each_packets(group, y_packets(), [&](const auto& at, const auto& exists) {
        Packet packets[kTogether] = {};
        unrolled<kTogether>([&](auto t) {
          if (exists(t)) packets[t] = normed_packet(token, at(t), factor);
        });
        unrolled<kTogether>([&](auto t) {
          if (!exists(t)) return;
          store_packet(y_row(token), at(t), y_bytes(), packets[t]);
          emit(at(t), packets[t]);
        });
      });
#endif
    }
  }

 private:
#ifdef __CUDACC__
  // Packets of a lane whose loads are in flight together: one at a time, a row takes as many trips to memory as a lane has
  // packets.
  static constexpr int kTogether = 2;

  // Calls f(at, exists) for the packets of this lane, kTogether at a time: number t of them is packet at(t).
  template <Group G, class F>
  static __device__ void each_packets(const G& group, std::size_t packets, const F& f) {
    const auto lanes = static_cast<std::size_t>(group.lanes());
    for (std::size_t i = static_cast<std::size_t>(group.lane()); i < packets; i += kTogether * lanes) {
      const auto at = [&](int t) { return i + static_cast<std::size_t>(t) * lanes; };
      f(at, [&](int t) { return at(t) < packets; });
    }
  }

  __device__ float4* residual_packet(std::int64_t token, std::size_t i) const {
    return reinterpret_cast<float4*>(residual + token * hidden + static_cast<std::int64_t>(i) * kElements);
  }
  __device__ void load_residual(std::int64_t token, std::size_t i, float4 (&before)[kElements / 4]) const {
    const float4* const z = residual_packet(token, i);
    unrolled<kElements / 4>([&](auto k) { before[k] = z[k]; });
  }
  __device__ float add_to_residual(std::int64_t token, std::size_t i, const PacketSum<X>& sum,
                                   const float4 (&before)[kElements / 4]) const {
    float4* const z = residual_packet(token, i);
    float squares = 0;
    unrolled<kElements / 4>([&](auto k) {
      float4 four = before[k];
      four.x = sum.template value<4 * k>() + four.x;
      four.y = sum.template value<4 * k + 1>() + four.y;
      four.z = sum.template value<4 * k + 2>() + four.z;
      four.w = sum.template value<4 * k + 3>() + four.w;
      z[k] = four;
      squares = __fmaf_rn(four.x, four.x, squares);
      squares = __fmaf_rn(four.y, four.y, squares);
      squares = __fmaf_rn(four.z, four.z, squares);
      squares = __fmaf_rn(four.w, four.w, squares);
    });
    return squares;
  }

  __device__ Packet normed_packet(std::int64_t token, std::size_t i, float factor) const {
    constexpr int kOut = static_cast<int>(kPacketBytes / sizeof(Y));
    const auto first = static_cast<std::int64_t>(i) * kOut;
    const auto* const z = reinterpret_cast<const float4*>(residual + token * hidden + first);
    const auto* const w = reinterpret_cast<const float4*>(weight + first);
    float out[kOut];
    unrolled<kOut / 4>([&](auto k) {
      const float4 four = z[k], weights = w[k];
      out[4 * k] = four.x * factor * weights.x;
      out[4 * k + 1] = four.y * factor * weights.y;
      out[4 * k + 2] = four.z * factor * weights.z;
      out[4 * k + 3] = four.w * factor * weights.w;
    });
    return narrowed<Y>(out);
  }
#endif

  // Parts that fit into the L1 cache, in loops that the compiler vectorises.
  template <class Source>
  void add_row_on_cpu(int ranks, std::int64_t token, const Source& source) const {
    constexpr std::int64_t kPart = 1024;
    float sums[kPart];
    X part[kPart];
    for (std::int64_t begin = 0; begin < hidden; begin += kPart) {
      const std::int64_t count = std::min(kPart, hidden - begin);
      for (int p = 0; p < ranks; ++p) {
        std::memcpy(part, source(p) + static_cast<std::size_t>(begin) * sizeof(X),
                    static_cast<std::size_t>(count) * sizeof(X));
        if (p == 0)
          for (std::int64_t i = 0; i < count; ++i) sums[i] = to_float(part[i]);
        else
          for (std::int64_t i = 0; i < count; ++i) sums[i] += to_float(part[i]);
      }
      float* const z = residual + token * hidden + begin;
      for (std::int64_t i = 0; i < count; ++i) z[i] = sums[i] + z[i];
    }
  }
};

}  // namespace heddle
