// direct_norm.cuh on a block of a GPU. All rows come and leave by TMA (cp.async.bulk), through shared memory, so that no thread
// waits for memory, an SM has more than 100 KB on the way, and few SMs keep the links busy.
//
// Two groups of eight warps, or one where rows are too wide, sum and normalise rows by turns, so that one computes while the
// other waits for its lanes; a lane has the same columns of each row, and keeps their weights. Two warps more move rows, by
// one lane each:
//   load    the residual, and every rank's share of own rows: -> two rings in shared memory (DirectNormRoom)
//   store   the residual, and normalised rows, which lie where this rank's share lay: -> y at every rank
//
// Memory order. What TMA has written to a peer is complete when the thread that started the stores has waited for their group;
// a fence and the flag at system scope come behind. Who has seen a flag fences the async proxy before TMA reads.
//
// A wait for a peer that gives up at the start ends nothing: the block sums its own rows alone and stores them on this rank
// only, so that its warps, who wait at mbarriers for each other, come to their ends. One that gives up at the end lets the
// block end. The host throws (device/wait_watch.h).
#pragma once

#include "device/bulk_stores_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "fused/all_reduce_norm/direct_norm.cuh"
#include "fused/all_reduce_norm/direct_norm_room.h"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {

// Four numbers of a row at a time: quad q has elements 4 q to 4 q + 3. So the residual's 16 bytes and x's 8 of neighbouring
// lanes are neighbours, too.
template <class T>
__device__ inline float4 load_quad(const std::byte* row, int q) {
  if constexpr (sizeof(T) == 4) {
    return reinterpret_cast<const float4*>(row)[q];
  } else {
    const uint2 words = reinterpret_cast<const uint2*>(row)[q];
    float4 quad;
    widen_pair<T>(words.x, quad.x, quad.y);
    widen_pair<T>(words.y, quad.z, quad.w);
    return quad;
  }
}
template <class T>
__device__ inline void store_quad(std::byte* row, int q, const float4& quad) {
  if constexpr (sizeof(T) == 4)
    reinterpret_cast<float4*>(row)[q] = quad;
  else
    reinterpret_cast<uint2*>(row)[q] = {narrow_pair<T>(quad.x, quad.y), narrow_pair<T>(quad.z, quad.w)};
}

// kQuads: of a lane at most.
template <class X, class Y, int kQuads>
struct DirectNormKernel {
  NormRows<X, Y> rows;
  DirectNormRoom room;

  static constexpr int kGroups = static_cast<int>(DirectNormRoom::kMostGroups), kWarps = 8,
                       kLanes = 32 * kWarps;  // of a group
  static constexpr int kBlockThreads = kGroups * kLanes + 2 * 32;
  static constexpr std::int64_t kMostHidden = 4 * kQuads * kLanes;

  struct Barriers {
    sm90::Mbarrier met;
    sm90::Mbarrier residual_full[DirectNormRoom::kMostResiduals], residual_empty[DirectNormRoom::kMostResiduals];
    sm90::Mbarrier normed[DirectNormRoom::kMostResiduals];
    sm90::Mbarrier share_full[DirectNormRoom::kMostShares], share_empty[DirectNormRoom::kMostShares];
    float sums[kGroups][64];
    bool alone;  // known once they have met
  };
  static_assert(sizeof(Barriers) <= DirectNormRoom::kOtherBytes);

  template <PeerAddressing P>
  __device__ void operator()(const DeviceBlock& group, const P& peers, const AllReduceNormMemory& memory) const {
    extern __shared__ __align__(128) std::byte norm_room[];
    __shared__ Barriers barriers;
    NormBlockState& state = memory.blocks[group.block()];
    const Call<P> call{{peers, memory, group.block(), state.chunks}, rows, room, group.blocks(), norm_room, barriers};
    if (threadIdx.x == 0) call.init();
    __syncthreads();  // and every lane has read the counter
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (warp < kGroups * kWarps) return call.normalize(warp / kWarps);
    if (warp == kGroups * kWarps) return call.load();
    call.store();
    if (threadIdx.x % 32 == 0) state.chunks = call.before + 1;
  }

  template <PeerAddressing P>
  struct Call : NormFlags<P> {
    using NormFlags<P>::before, NormFlags<P>::block, NormFlags<P>::memory, NormFlags<P>::peers;

    const NormRows<X, Y>& rows;
    const DirectNormRoom& room;
    int blocks;
    std::byte* shared;
    Barriers& barriers;

    // A slot of the ring of shares has those of one rank alone.
    __device__ void init() const {
      barriers.met.init(1);
      for (std::uint32_t slot = 0; slot < room.residuals(); ++slot) {
        barriers.residual_full[slot].init(1);
        barriers.residual_empty[slot].init(1);
        barriers.normed[slot].init(kWarps);
      }
      for (std::uint32_t slot = 0; slot < room.shares(); ++slot) {
        barriers.share_full[slot].init(1);
        barriers.share_empty[slot].init(static_cast<int>(slot) % peers.size == peers.rank ? 1 : kWarps);
      }
      sm90::publish_barriers();
    }

    __device__ void await(const sm90::Mbarrier& barrier, std::uint32_t parity) const {
      static_cast<void>(barrier.template wait<sm90::LongWaitDeadline>({.limit = peers.waits, .tag = "norm: direct"},
                                                                      static_cast<int>(parity & 1)));
    }
    __device__ static bool leads() { return threadIdx.x % 32 == 0; }

    // Where a ring stands: what comes next is in `slot`, the `lap`-th time.
    struct Turn {
      std::uint32_t slot = 0, lap = 0;
      __device__ void next(std::uint32_t slots) {
        if (++slot < slots) return;
        slot = 0;
        ++lap;
      }
    };

    // Calls f(token) for the rows of this block in their order.
    template <class F>
    __device__ void each_row(const F& f) const {
      for (std::int64_t token = rows.rows.begin(peers.rank) + block; token < rows.rows.end(peers.rank); token += blocks)
        f(token);
    }
    __device__ float* residual_row(std::int64_t token) const { return rows.residual + token * rows.hidden; }

    __device__ void load() const {
      this->warp_tells(memory.shares_come, 1);
      const bool alone = !this->warp_waits(memory.shares_come, 1);
      __syncwarp();  // the lanes' acquires are all lanes'
      if (!leads()) return;
      barriers.alone = alone;
      barriers.met.arrive();
      sm90::fence_async_proxy_of_all_memory();
      const auto x_bytes = static_cast<std::uint32_t>(rows.x_bytes());
      const auto copy = [&](std::uint32_t to, const void* from, std::uint32_t bytes, sm90::Mbarrier& full) {
        full.arrive_expecting(bytes);
        sm90::copy_bytes(sm90::shared_address(shared + to), from, bytes, full.address());
      };
      Turn residual, share;
      each_row([&](std::int64_t token) {
        for (int p = 0; p < peers.size; ++p, share.next(room.shares())) {
          await(barriers.share_empty[share.slot], share.lap + 1);
          copy(room.share(share.slot), peers.at(alone ? peers.rank : p, rows.x_row(token)), x_bytes,
               barriers.share_full[share.slot]);
        }
        await(barriers.residual_empty[residual.slot], residual.lap + 1);
        copy(room.residual(residual.slot), residual_row(token), room.residual_bytes(),
             barriers.residual_full[residual.slot]);
        residual.next(room.residuals());
      });
    }

    __device__ void normalize(int group) const {
      const DeviceWarps lanes(group * kWarps, kWarps, 1 + group);
      const auto quads = static_cast<int>(rows.hidden / 4);
      const auto each_quad = [&](const auto& f) {
        unrolled<kQuads>([&](auto k) {
          if (const int q = lanes.lane() + k * kLanes; q < quads) f(k, q);
        });
      };
      float4 weight[kQuads], sum[kQuads];
      each_quad([&](auto k, int q) { weight[k] = reinterpret_cast<const float4*>(rows.weight)[q]; });
      Turn residual, share;
      const auto groups = static_cast<int>(room.groups());
      int number = 0, turn = 0;
      each_row([&](std::int64_t) {
        if (number++ % groups != group) {
          for (int p = 0; p < peers.size; ++p) share.next(room.shares());
          residual.next(room.residuals());
          return;
        }
        std::byte* normed = nullptr;
        for (int p = 0; p < peers.size; ++p, share.next(room.shares())) {
          await(barriers.share_full[share.slot], share.lap);
          std::byte* const row = shared + room.share(share.slot);
          each_quad([&](auto k, int q) {
            const float4 more = load_quad<X>(row, q);
            sum[k] =
                p == 0 ? more : make_float4(sum[k].x + more.x, sum[k].y + more.y, sum[k].z + more.z, sum[k].w + more.w);
          });
          if (p == peers.rank) {
            normed = row;
            continue;
          }
          sm90::fence_async_proxy();  // TMA writes a later row's share here (tma_ring.h)
          __syncwarp();
          if (leads()) barriers.share_empty[share.slot].arrive();
        }
        await(barriers.residual_full[residual.slot], residual.lap);
        auto* const z = reinterpret_cast<float4*>(shared + room.residual(residual.slot));
        float squares = 0;
        each_quad([&](auto k, int q) {
          const float4 was = z[q];
          sum[k] = make_float4(sum[k].x + was.x, sum[k].y + was.y, sum[k].z + was.z, sum[k].w + was.w);
          z[q] = sum[k];
          squares = __fmaf_rn(sum[k].x, sum[k].x, squares);
          squares = __fmaf_rn(sum[k].y, sum[k].y, squares);
          squares = __fmaf_rn(sum[k].z, sum[k].z, squares);
          squares = __fmaf_rn(sum[k].w, sum[k].w, squares);
        });
        // A barrier: all lanes have read this rank's share, over which y is written.
        const float total = sum_over_lanes(lanes, squares, barriers.sums[group], turn++);
        const float factor = 1.0f / sqrtf(total / static_cast<float>(rows.hidden) + rows.eps);
        each_quad([&](auto k, int q) {
          const float4 w = weight[k];
          store_quad<Y>(normed, q,
                        make_float4(sum[k].x * factor * w.x, sum[k].y * factor * w.y, sum[k].z * factor * w.z,
                                    sum[k].w * factor * w.w));
        });
        sm90::fence_async_proxy();  // TMA reads it, and the residual
        __syncwarp();
        if (leads()) barriers.normed[residual.slot].arrive();
        residual.next(room.residuals());
      });
    }

    // The lane that started the stores waits for them, and tells of them.
    __device__ void store() const {
      await(barriers.met, 0);
      const bool alone = barriers.alone;
      if (leads()) {
        store_rows(alone);
        sm90::wait_for_stores();
        sm90::fence_async_proxy_of_all_memory();
        if (!alone) this->tell_all(memory.rows_come, 1);
      }
      __syncwarp();
      if (!alone) static_cast<void>(this->warp_waits(memory.rows_come, 1));
    }

    // A row's slots are given back behind the stores of the next one, or at once where that is not there yet: it may wait
    // for them.
    __device__ void store_rows(bool alone) const {
      const auto y_bytes = static_cast<std::uint32_t>(rows.y_bytes());
      const auto ranks = static_cast<std::uint32_t>(peers.size), own = static_cast<std::uint32_t>(peers.rank);
      Turn residual, row;                // a row is so many slots of the ring of shares as there are ranks
      Turn residual_before, row_before;  // of the row before
      bool holds_before = false;
      const auto give_back = [&] {
        barriers.residual_empty[residual_before.slot].arrive();
        barriers.share_empty[row_before.slot * ranks + own].arrive();
        holds_before = false;
      };
      each_row([&](std::int64_t token) {
        const sm90::Mbarrier& normed = barriers.normed[residual.slot];
        if (holds_before && !normed.has_ended(static_cast<int>(residual.lap & 1))) {
          sm90::wait_until_stores_have_read();
          give_back();
        }
        await(normed, residual.lap);
        sm90::store_bytes(residual_row(token), sm90::shared_address(shared + room.residual(residual.slot)),
                          room.residual_bytes());
        const std::uint32_t from = sm90::shared_address(shared + room.share(row.slot * ranks + own));
        for (int step = 0; step < (alone ? 1 : peers.size); ++step) {
          const int to = step == 0 ? peers.rank : this->peer_at(step);
          sm90::store_bytes(peers.at(to, rows.y_row(token)), from, y_bytes);
        }
        sm90::commit_stores();
        if (holds_before) {
          sm90::wait_until_stores_have_read<1>();  // all but those of this row
          give_back();
        }
        holds_before = true;
        residual_before = residual;
        row_before = row;
        residual.next(room.residuals());
        row.next(room.shares() / ranks);
      });
    }
  };
};

}  // namespace heddle
