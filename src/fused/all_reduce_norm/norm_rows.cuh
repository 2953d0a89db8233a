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
    float4 z[kElements / 4];
    load(residual + token * hidden, i, z);
    return add_to_residual(token, i, sum, z);
#else
    const auto first = static_cast<std::int64_t>(i) * kElements;
    float* const z = residual + token * hidden + first;
    unrolled<kElements>([&](auto k) {
      if (first + k < hidden) z[k] = sum.template value<k>() + z[k];
    });
    return 0;
#endif
  }

#ifdef __CUDACC__
  // Packets of a lane whose loads are in flight together: one at a time, a row takes as many trips to memory as a lane has
  // packets.
  static constexpr int kTogether = 2;

  // What a lane keeps in registers of a row, so that a small call reads no memory between the arrival of its packets and its
  // last store.
  struct Held {
    float4 residual[kTogether][kElements / 4];
    float4 weight[kTogether][kElements / 4];
  };
  // Whether it can, where x and y have as many packets. They are whole and aligned then.
  template <Group G>
  __device__ bool can_hold(const G& group) const {
    return x_packets() <= static_cast<std::size_t>(kTogether * group.lanes()) && is_aligned(x) && is_aligned(y);
  }
  template <Group G>
  __device__ Held hold(const G& group, std::int64_t token) const {
    Held held{};
    each_held(group, [&](auto t, std::size_t i) {
      load(residual + token * hidden, i, held.residual[t]);
      load(weight, i, held.weight[t]);
    });
    return held;
  }
  // As add_packet() and norm_row(): row[t] is the sum of packet t of the lane.
  template <Group G, class Emit>
  __device__ void add_and_norm(const G& group, std::int64_t token, Held& held, const PacketSum<X> (&row)[kTogether],
                               float* sums, int turn, const Emit& emit) const {
    float squares = 0;
    each_held(group, [&](auto t, std::size_t i) { squares += add_to_residual(token, i, row[t], held.residual[t]); });
    const float factor = norm_factor(group, squares, sums, turn);
    each_held(group, [&](auto t, std::size_t i) {
      const Packet packet = normed(held.residual[t], held.weight[t], factor);
      reinterpret_cast<Packet*>(y_row(token))[i] = packet;
      emit(i, packet);
    });
  }
#endif

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
        float4 z[kTogether][kElements / 4];
        unrolled<kTogether>([&](auto t) {
          if (exists(t)) load(residual + token * hidden, at(t), z[t]);
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
          if (exists(t)) squares += add_to_residual(token, at(t), sums[t], z[t]);
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
      const float factor = norm_factor(group, squares, sums, turn);
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
  static constexpr int kOut = static_cast<int>(kPacketBytes / sizeof(Y));  // elements of a packet of y

  // Calls f(at, exists) for the packets of this lane, kTogether at a time: number t of them is packet at(t).
  template <Group G, class F>
  static __device__ void each_packets(const G& group, std::size_t packets, const F& f) {
    const auto lanes = static_cast<std::size_t>(group.lanes());
    for (std::size_t i = static_cast<std::size_t>(group.lane()); i < packets; i += kTogether * lanes) {
      const auto at = [&](int t) { return i + static_cast<std::size_t>(t) * lanes; };
      f(at, [&](int t) { return at(t) < packets; });
    }
  }

  // Calls f(t, i) for the packets of this lane where a lane has kTogether at most: i is number t of them, t a constant.
  template <Group G, class F>
  __device__ void each_held(const G& group, const F& f) const {
    unrolled<kTogether>([&](auto t) {
      const auto i = static_cast<std::size_t>(group.lane() + t * group.lanes());
      if (i < x_packets()) f(t, i);
    });
  }

  // Elements of the row at `from` that packet i of x or y has.
  template <int kFours>
  static __device__ void load(const float* from, std::size_t i, float4 (&fours)[kFours]) {
    const auto* const place = reinterpret_cast<const float4*>(from) + i * kFours;
    unrolled<kFours>([&](auto k) { fours[k] = place[k]; });
  }

  // Adds packet i of a row's sum to z, the residual's elements, which receives the sum and is stored; returns its sum of squares.
  __device__ float add_to_residual(std::int64_t token, std::size_t i, const PacketSum<X>& sum,
                                   float4 (&z)[kElements / 4]) const {
    auto* const place = reinterpret_cast<float4*>(residual + token * hidden) + i * (kElements / 4);
    float squares = 0;
    unrolled<kElements / 4>([&](auto k) {
      float4& four = z[k];
      four.x = sum.template value<4 * k>() + four.x;
      four.y = sum.template value<4 * k + 1>() + four.y;
      four.z = sum.template value<4 * k + 2>() + four.z;
      four.w = sum.template value<4 * k + 3>() + four.w;
      place[k] = four;
      squares = __fmaf_rn(four.x, four.x, squares);
      squares = __fmaf_rn(four.y, four.y, squares);
      squares = __fmaf_rn(four.z, four.z, squares);
      squares = __fmaf_rn(four.w, four.w, squares);
    });
    return squares;
  }

  // From what each lane has summed of a row's squares. A barrier of the group.
  template <Group G>
  __device__ float norm_factor(const G& group, float squares, float* sums, int turn) const {
    const float total = sum_over_lanes(group, squares, sums, turn);
    return 1.0f / sqrtf(total / static_cast<float>(hidden) + eps);
  }

  template <int kFours>
  static __device__ Packet normed(const float4 (&z)[kFours], const float4 (&weights)[kFours], float factor) {
    float out[4 * kFours];
    unrolled<kFours>([&](auto k) {
      out[4 * k] = z[k].x * factor * weights[k].x;
      out[4 * k + 1] = z[k].y * factor * weights[k].y;
      out[4 * k + 2] = z[k].z * factor * weights[k].z;
      out[4 * k + 3] = z[k].w * factor * weights[k].w;
    });
    return narrowed<Y>(out);
  }

  __device__ Packet normed_packet(std::int64_t token, std::size_t i, float factor) const {
    float4 z[kOut / 4], w[kOut / 4];
    load(residual + token * hidden, i, z);
    load(weight, i, w);
    return normed(z, w, factor);
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
