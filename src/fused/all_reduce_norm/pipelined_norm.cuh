// The regime of many tokens, by stores alone and without a barrier. Every rank pushes its share of a chunk of rows into
// slots of their owner; the owner sums, adds the residual, normalises, and pushes the rows into slots of all others, which
// copy them out. 2 (N-1)/N S bytes a rank. A chunk's three flags at a rank (norm_memory.h) say what has come and which
// slots are free again.
//
// No rank waits at the start, even if the last call had another shape, and so other slots. A rank has ended a call when
// every owner's rows have come: by then every owner has read all shares, so the half of the slots that shares have is free.
// The other half may still be copied out. And an owner sends a row of this call only after the receiver's share of it has
// come: the receiver is in this call, and has copied out all rows of the last.
//
// On a GPU some warps of a block push, some normalise and some copy out, each group with one more warp for its flags. On
// the CPU one thread does the three alternating; chunk c is normalised `ahead` rounds after it was pushed and copied out
// `ahead` rounds later. Nobody waits for a later round than its own: a push needs its slot's chunk c - slots normalised,
// which its owner does in round c - slots + ahead < c.
#pragma once

#include "device/warp_chunks.cuh"
#include "fused/all_reduce_norm/norm_call.cuh"

namespace heddle {

template <class X, class Y>
struct PipelinedNorm {
  NormRows<X, Y> rows;
  NormChunks chunks;

  static constexpr int kPushWarps = 4, kNormWarps = 8, kCopyWarps = 4;
  static constexpr int kBlockThreads = 32 * (kPushWarps + kNormWarps + kCopyWarps + 3);  // on a GPU

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const AllReduceNormMemory& memory) const {
    NormBlockState& state = memory.blocks[group.block()];
    const Call<P> call{{{peers, memory, group.block(), state.chunks}, rows, chunks}};
    if constexpr (kOneLane<G>)
      call.alone(group, state);
    else
      call.shared_out(state);
  }

  template <PeerAddressing P>
  struct Call : NormCall<X, Y, P> {
    using Base = NormCall<X, Y, P>;
    using Base::before, Base::block, Base::cut, Base::memory, Base::peers, Base::rows;
    using Base::count, Base::first_token, Base::peer_at, Base::tell_all, Base::wait_for_all;

    template <Group Lanes>
    HEDDLE_HOST_DEVICE void push(const Lanes& lanes, std::uint32_t c) const {
      std::byte* const slot = memory.slots + cut.share(peers.rank, block, c);
      for (int step = 1; step < peers.size; ++step) {
        const int owner = peer_at(step);
        if (const std::int64_t some = count(owner, c); some > 0)
          vector_copy(lanes, peers.at(owner, slot), rows.x_row(first_token(owner, c)),
                      static_cast<std::size_t>(some) * rows.x_bytes());
      }
    }

    template <Group Lanes>
    HEDDLE_HOST_DEVICE void normalize(const Lanes& lanes, std::uint32_t c, float* sums, int& turn) const {
      for (std::int64_t row = 0; row < count(peers.rank, c); ++row) {
        const std::int64_t token = first_token(peers.rank, c) + row;
        const auto share = [&](int p) -> const std::byte* {
          return p == peers.rank
                     ? rows.x_row(token)
                     : memory.slots + cut.share(p, block, c) + static_cast<std::size_t>(row) * rows.x_bytes();
        };
        std::byte* const slot =
            memory.slots + cut.normed(peers.rank, block, c) + static_cast<std::size_t>(row) * rows.y_bytes();
        const float squares = rows.add_row(lanes, peers.size, token, share);
        rows.norm_row(lanes, token, squares, sums, turn++, [&](std::size_t i, const Packet& packet) {
          for (int step = 1; step < peers.size; ++step)
            store_packet(peers.at(peer_at(step), slot), i, rows.y_bytes(), packet);
        });
      }
    }

    template <Group Lanes>
    HEDDLE_HOST_DEVICE void copy_out(const Lanes& lanes, std::uint32_t c) const {
      for (int step = 1; step < peers.size; ++step) {
        const int owner = peer_at(step);
        if (const std::int64_t some = count(owner, c); some > 0)
          vector_copy(lanes, rows.y_row(first_token(owner, c)), memory.slots + cut.normed(owner, block, c),
                      static_cast<std::size_t>(some) * rows.y_bytes());
      }
    }

    template <Group Lane>
    HEDDLE_HOST_DEVICE void alone(const Lane& lane, NormBlockState& state) const {
      const std::uint32_t all = cut.chunks(block), slots = cut.slots(), ahead = slots - 1;
      int turn = 0;
      for (std::uint32_t round = 0; round < all + 2 * ahead; ++round) {
        if (const std::uint32_t c = round; c < all) {
          if (c >= slots && !wait_for_all(memory.rows_come, c - slots + 1)) return;
          push(lane, c);
          tell_all(memory.shares_come, c + 1);
        }
        if (const std::uint32_t c = round - ahead; round >= ahead && c < all) {
          if (!wait_for_all(memory.shares_come, c + 1)) return;
          if (c >= slots && !wait_for_all(memory.rows_taken, c - slots + 1)) return;
          normalize(lane, c, nullptr, turn);
          tell_all(memory.rows_come, c + 1);
        }
        if (const std::uint32_t c = round - 2 * ahead; round >= 2 * ahead && c < all) {
          if (!wait_for_all(memory.rows_come, c + 1)) return;
          copy_out(lane, c);
          tell_all(memory.rows_taken, c + 1);
        }
      }
      state.chunks = before + all;
    }

#ifdef __CUDACC__
    using Base::warp_tells, Base::warp_waits;

    __device__ void shared_out(NormBlockState& state) const {
      constexpr int kNormFirst = kPushWarps, kCopyFirst = kPushWarps + kNormWarps, kFlags = kCopyFirst + kCopyWarps;
      __shared__ bool stopped[3][2];
      __shared__ float sums[64];
      if (threadIdx.x < 6) stopped[threadIdx.x / 2][threadIdx.x % 2] = false;
      __syncthreads();  // and every lane has read the counter
      const int warp = static_cast<int>(threadIdx.x / 32);
      const std::uint32_t all = cut.chunks(block), slots = cut.slots();
      if (warp < kNormFirst || warp == kFlags) {
        const WarpsOfBlock pushing(0, kPushWarps, 1);
        static_cast<void>(chunk_by_chunk(
            pushing, all, stopped[0],
            [&](std::uint32_t c) { return c < slots || warp_waits(memory.rows_come, c - slots + 1); },
            [&](std::uint32_t c) { push(pushing, c); },
            [&](std::uint32_t done) { warp_tells(memory.shares_come, done); }));
        return;
      }
      if (warp < kCopyFirst || warp == kFlags + 1) {
        const WarpsOfBlock normalising(kNormFirst, kNormWarps, 2);
        const DeviceWarps of_a_row(kNormFirst, kNormWarps, 4);
        int turn = 0;
        static_cast<void>(chunk_by_chunk(
            normalising, all, stopped[1],
            [&](std::uint32_t c) {
              return warp_waits(memory.shares_come, c + 1) &&
                     (c < slots || warp_waits(memory.rows_taken, c - slots + 1));
            },
            [&](std::uint32_t c) { normalize(of_a_row, c, sums, turn); },
            [&](std::uint32_t done) { warp_tells(memory.rows_come, done); }));
        return;
      }
      const WarpsOfBlock copying(kCopyFirst, kCopyWarps, 3);
      const bool all_copied = chunk_by_chunk(
          copying, all, stopped[2], [&](std::uint32_t c) { return warp_waits(memory.rows_come, c + 1); },
          [&](std::uint32_t c) { copy_out(copying, c); },
          [&](std::uint32_t done) { warp_tells(memory.rows_taken, done); });
      if (all_copied && threadIdx.x == 32 * (kFlags + 2)) state.chunks = before + all;
    }
#endif
  };
};

}  // namespace heddle
