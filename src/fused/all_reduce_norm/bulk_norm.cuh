// The pipelined regime on a GPU by TMA (cp.async.bulk), so that few SMs keep the links busy: no thread waits for a load
// or a store of a row, and an SM has some 100 KB of rows in flight. The protocol, its chunks, slots and flags are
// those of pipelined_norm.cuh; ranks may run either form.
//
// Two groups of warps sum and normalise every other row each. Four warps move rows, by one lane each:
//   push      own shares of others' rows:   x -> shared memory -> the owner's slots, then shares_come there
//   load      every rank's share of own rows: x or slots -> shared memory
//   store     normalised rows:              shared memory -> y and the others' slots, then rows_come there
//   copy out  others' normalised rows:      slots -> shared memory -> y; rows_taken there as soon as they are read
//
// Whoever is about to wait for a peer, or for the groups, first tells of all that he has done (drain). So nobody waits
// for somebody who waits for him, with any number of slots.
//
// Memory order. What TMA has written to a peer is complete when the thread that started the stores has waited for their group;
// a fence and the flag at system scope come behind. Who has seen the flag fences the async proxy before TMA reads what has come.
//
// A wait for a peer that gives up ends nothing: its warp goes on without waiting, and neither stores to a peer nor tells of
// anything, so that the others, who wait at mbarriers for each other, come to their ends. The host throws (device/wait_watch.h).
#pragma once

#include "device/bulk_stores_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "fused/all_reduce_norm/norm_call.cuh"
#include "fused/all_reduce_norm/norm_room.h"
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

// How far all peers have told by one kind of flag, by all lanes of a warp. Remembers what it has seen, since a look at a flag
// takes a trip to the L2 cache.
template <class Call>
class FlagsOfPeers {
 public:
  __device__ FlagsOfPeers(const Call& call, std::uint64_t* flags) : call_(call), flags_(flags) {}

  // Whether all had told of `count` chunks of this call when it looked.
  __device__ bool have(std::uint32_t count) {
    if (known_ >= count) return true;
    look([&](int p) { return atomic_load(call_.flag(flags_, p)); });
    return known_ >= count;
  }
  // Waits until they have. False when a wait has given up.
  [[nodiscard]] __device__ bool wait(std::uint32_t count) {
    if (known_ >= count) return true;
    bool all = true;
    const std::uint64_t target = call_.before + count;
    look([&](int p) {
      std::uint64_t seen = 0;
      all = spin_until(call_.peers.waits, call_.reason(p, flags_), call_.flag(flags_, p), target,
                       [&](std::uint64_t observed) { return (seen = observed) >= target; }) &&
            all;
      return seen;
    });
    return __all_sync(~0u, all ? 1 : 0) != 0;
  }

 private:
  template <class Look>
  __device__ void look(const Look& at) {
    std::uint32_t least = ~0u;
    for (int p = static_cast<int>(threadIdx.x % 32); p < call_.peers.size; p += 32) {
      if (p == call_.peers.rank) continue;
      const std::uint64_t seen = at(p);
      const std::uint32_t chunks = seen > call_.before ? static_cast<std::uint32_t>(seen - call_.before) : 0;
      least = chunks < least ? chunks : least;
    }
    known_ = __reduce_min_sync(~0u, least);
    __syncwarp();  // the lanes' acquires are all lanes'
  }

  const Call& call_;
  std::uint64_t* flags_;
  std::uint32_t known_ = 0;
};

// kQuads: of a lane at most.
template <class X, class Y, int kQuads>
struct BulkNorm {
  NormRows<X, Y> rows;
  NormChunks chunks;
  NormRoom room;

  static constexpr int kGroups = static_cast<int>(NormRoom::kGroups), kGroupWarps = 8, kGroupLanes = 32 * kGroupWarps;
  static constexpr std::uint32_t kThrough = NormRoom::kThroughSlots;
  static constexpr int kBlockThreads = 32 * (kGroups * kGroupWarps + 4);
  static constexpr std::int64_t kMostHidden = 4 * kQuads * kGroupLanes;

  struct Barriers {
    sm90::Mbarrier share_full[NormRoom::kMostShareSlots], share_empty[NormRoom::kMostShareSlots];
    sm90::Mbarrier normed_full[kGroups], normed_empty[kGroups];
    sm90::Mbarrier push_full[kThrough], copy_full[kThrough];
    float sums[kGroups][64];
  };

  template <PeerAddressing P>
  __device__ void operator()(const DeviceBlock& group, const P& peers, const AllReduceNormMemory& memory) const {
    extern __shared__ __align__(128) std::byte norm_room[];
    __shared__ Barriers barriers;
    NormBlockState& state = memory.blocks[group.block()];
    const Call<P> call{{rows, chunks, peers, memory, group.block(), state.chunks}, room, norm_room, barriers};
    if (threadIdx.x == 0) call.init();
    auto* const weight = reinterpret_cast<float4*>(norm_room);
    for (int q = static_cast<int>(threadIdx.x); q < rows.hidden / 4; q += kBlockThreads)
      weight[q] = reinterpret_cast<const float4*>(rows.weight)[q];
    __syncthreads();  // and every lane has read the counter
    const int warp = static_cast<int>(threadIdx.x / 32);
    constexpr int kMovers = kGroups * kGroupWarps;
    if (warp < kMovers) return call.normalize(warp / kGroupWarps);
    if (warp == kMovers) return call.push();
    if (warp == kMovers + 1) return call.load();
    if (warp == kMovers + 2) return call.store();
    call.copy_out();
    if (threadIdx.x % 32 == 0) state.chunks = call.before + chunks.chunks(group.block());
  }

  template <PeerAddressing P>
  struct Call : NormCall<X, Y, P> {
    using Base = NormCall<X, Y, P>;
    using Base::before, Base::block, Base::cut, Base::memory, Base::peers, Base::rows;
    using Flags = FlagsOfPeers<Base>;

    const NormRoom& room;
    std::byte* shared;
    Barriers& barriers;

    __device__ Call(const Base& base, const NormRoom& of, std::byte* at, Barriers& those)
        : Base(base), room(of), shared(at), barriers(those) {}

    __device__ void init() const {
      for (std::uint32_t slot = 0; slot < room.share_slots(); ++slot) {
        barriers.share_full[slot].init(1);
        barriers.share_empty[slot].init(kGroupWarps);
      }
      for (int g = 0; g < kGroups; ++g) {
        barriers.normed_full[g].init(kGroupWarps);
        barriers.normed_empty[g].init(1);
      }
      for (std::uint32_t slot = 0; slot < kThrough; ++slot) {
        barriers.push_full[slot].init(1);
        barriers.copy_full[slot].init(1);
      }
      sm90::publish_barriers();
    }

    __device__ KernelWaits in_block() const { return {.limit = peers.waits, .tag = "norm: bulk"}; }
    __device__ void await(const sm90::Mbarrier& barrier, std::uint32_t parity) const {
      static_cast<void>(barrier.template wait<sm90::LongPatience>(in_block(), static_cast<int>(parity & 1)));
    }
    __device__ static bool leads() { return threadIdx.x % 32 == 0; }

    // By the lane whose stores the flags tell of, after they have completed.
    __device__ void tell_after_stores(int peer, std::uint64_t* flags, std::uint32_t count) const {
      sm90::fence_async_proxy_of_all_memory();
      this->tell(peer, flags, count);
    }

    // A piece is what goes to, or comes from, one peer in one chunk.
    struct Piece {
      std::uint32_t chunk;
      int peer;
      std::uint32_t rows;
    };
    __device__ std::uint32_t pieces() const { return cut.chunks(block) * static_cast<std::uint32_t>(peers.size - 1); }
    __device__ Piece piece(std::uint32_t i) const {
      const auto others = static_cast<std::uint32_t>(peers.size - 1);
      const std::uint32_t c = i / others;
      const int peer = this->peer_at(1 + static_cast<int>(i - c * others));
      return {c, peer, static_cast<std::uint32_t>(this->count(peer, c))};
    }

    __device__ void push() const {
      const std::uint32_t all = pieces(), slots = cut.slots();
      Flags normed(*this, memory.rows_come);
      const auto row = static_cast<std::uint32_t>(rows.x_bytes());
      const auto load_piece = [&](std::uint32_t i) {
        const Piece one = piece(i);
        sm90::Mbarrier& full = barriers.push_full[i % kThrough];
        full.arrive_expecting(one.rows * row);
        if (one.rows > 0)
          sm90::copy_bytes(sm90::shared_address(shared + room.push(i % kThrough)),
                           rows.x_row(this->first_token(one.peer, one.chunk)), one.rows * row, full.address());
      };
      bool stopped = false;
      std::uint32_t told = 0;
      const auto tell_before = [&](std::uint32_t end) {
        for (; told < end; ++told) {
          const Piece one = piece(told);
          if (!stopped) tell_after_stores(one.peer, memory.shares_come, one.chunk + 1);
        }
      };
      if (leads())
        for (std::uint32_t i = 0; i < kThrough - 1 && i < all; ++i) load_piece(i);
      for (std::uint32_t i = 0; i < all; ++i) {
        const Piece one = piece(i);
        if (!stopped && one.chunk >= slots && !normed.have(one.chunk - slots + 1)) {
          if (leads()) {
            sm90::wait_for_stores();
            tell_before(i);
          }
          stopped = !normed.wait(one.chunk - slots + 1);
        }
        if (!leads()) continue;
        await(barriers.push_full[i % kThrough], i / kThrough);
        if (one.rows > 0 && !stopped)
          sm90::store_bytes(peers.at(one.peer, memory.slots + cut.share(peers.rank, block, one.chunk)),
                            sm90::shared_address(shared + room.push(i % kThrough)), one.rows * row);
        sm90::commit_stores();
        if (i + kThrough - 1 < all) {
          sm90::wait_until_stores_have_read<1>();  // those of the slot that comes next
          load_piece(i + kThrough - 1);
        }
        sm90::wait_for_stores<2>();
        if (i >= 2) tell_before(i - 1);
      }
      if (!leads()) return;
      sm90::wait_for_stores();
      tell_before(all);
    }

    __device__ void load() const {
      const std::uint32_t all = cut.chunks(block);
      Flags shares(*this, memory.shares_come);
      const auto row_bytes = static_cast<std::uint32_t>(rows.x_bytes());
      bool stopped = false;
      std::uint32_t slot = 0, lap = 0;
      for (std::uint32_t c = 0; c < all; ++c) {
        stopped = stopped || !shares.wait(c + 1);
        if (!leads()) continue;
        sm90::fence_async_proxy_of_all_memory();
        const std::int64_t token = this->first_token(peers.rank, c), count = this->count(peers.rank, c);
        for (std::int64_t row = 0; row < count; ++row) {
          sm90::prefetch_bytes(rows.residual + (token + row) * rows.hidden,
                               static_cast<std::uint32_t>(rows.hidden * std::int64_t{sizeof(float)}));
          for (int p = 0; p < peers.size; ++p) {
            const std::byte* const share =
                p == peers.rank ? rows.x_row(token + row)
                                : memory.slots + cut.share(p, block, c) + static_cast<std::size_t>(row) * row_bytes;
            await(barriers.share_empty[slot], lap + 1);
            barriers.share_full[slot].arrive_expecting(row_bytes);
            sm90::copy_bytes(sm90::shared_address(shared + room.share(slot)), share, row_bytes,
                             barriers.share_full[slot].address());
            if (++slot == room.share_slots()) {
              slot = 0;
              ++lap;
            }
          }
        }
      }
    }

    __device__ void normalize(int group) const {
      const DeviceWarps lanes(group * kGroupWarps, kGroupWarps, 1 + group);
      const std::uint32_t all = cut.chunks(block);
      const auto quads = static_cast<int>(rows.hidden / 4);
      const auto at = [&](int k) { return lanes.lane() + k * kGroupLanes; };
      std::uint32_t number = 0;  // of this block's own rows
      for (std::uint32_t c = 0; c < all; ++c) {
        const std::int64_t first = this->first_token(peers.rank, c), count = this->count(peers.rank, c);
        for (std::int64_t row = 0; row < count; ++row, ++number)
          if (static_cast<int>(number % kGroups) == group) normalize_row(lanes, group, number, first + row, quads, at);
      }
    }

    template <class At>
    __device__ void normalize_row(const DeviceWarps& lanes, int group, std::uint32_t number, std::int64_t token,
                                  int quads, const At& at) const {
      auto* const residual = reinterpret_cast<float4*>(rows.residual + token * rows.hidden);
      float4 z[kQuads], sum[kQuads];
      unrolled<kQuads>([&](auto k) {
        if (at(k) < quads) z[k] = residual[at(k)];
      });
      for (int p = 0; p < peers.size; ++p) {
        const std::uint32_t i = number * static_cast<std::uint32_t>(peers.size) + static_cast<std::uint32_t>(p);
        const std::uint32_t lap = i / room.share_slots(), slot = i - lap * room.share_slots();
        await(barriers.share_full[slot], lap);
        const std::byte* const share = shared + room.share(slot);
        unrolled<kQuads>([&](auto k) {
          if (at(k) >= quads) return;
          const float4 more = load_quad<X>(share, at(k));
          sum[k] =
              p == 0 ? more : make_float4(sum[k].x + more.x, sum[k].y + more.y, sum[k].z + more.z, sum[k].w + more.w);
        });
        sm90::fence_async_proxy();  // TMA writes the next row there
        __syncwarp();
        if (leads()) barriers.share_empty[slot].arrive();
      }
      float squares = 0;
      unrolled<kQuads>([&](auto k) {
        if (at(k) >= quads) return;
        z[k] = make_float4(sum[k].x + z[k].x, sum[k].y + z[k].y, sum[k].z + z[k].z, sum[k].w + z[k].w);
        residual[at(k)] = z[k];
        squares = __fmaf_rn(z[k].x, z[k].x, squares);
        squares = __fmaf_rn(z[k].y, z[k].y, squares);
        squares = __fmaf_rn(z[k].z, z[k].z, squares);
        squares = __fmaf_rn(z[k].w, z[k].w, squares);
      });
      const std::uint32_t turn = number / kGroups;
      const float total = sum_over_lanes(lanes, squares, barriers.sums[group], static_cast<int>(turn % 2));
      const float factor = 1.0f / sqrtf(total / static_cast<float>(rows.hidden) + rows.eps);
      await(barriers.normed_empty[group], turn + 1);
      const auto* const weight = reinterpret_cast<const float4*>(shared);
      std::byte* const normed = shared + room.normed(static_cast<std::uint32_t>(group));
      unrolled<kQuads>([&](auto k) {
        if (at(k) >= quads) return;
        const float4 w = weight[at(k)];
        store_quad<Y>(
            normed, at(k),
            make_float4(z[k].x * factor * w.x, z[k].y * factor * w.y, z[k].z * factor * w.z, z[k].w * factor * w.w));
      });
      sm90::fence_async_proxy();  // TMA reads it
      __syncwarp();
      if (leads()) barriers.normed_full[group].arrive();
    }

    __device__ void store() const {
      const std::uint32_t all = cut.chunks(block), slots = cut.slots();
      Flags taken(*this, memory.rows_taken);
      const auto row_bytes = static_cast<std::uint32_t>(rows.y_bytes());
      bool stopped = false;
      std::uint32_t stored = 0, freed = 0;  // rows
      std::uint32_t told = 0, done = 0;     // chunks; rows of the chunks before `told`
      std::uint32_t entered = 0;            // chunks whose rows, if any, are before `stored` or are being stored
      const auto free_before = [&](std::uint32_t end) {
        for (; freed < end; ++freed) barriers.normed_empty[freed % kGroups].arrive();
      };
      // Of the chunks whose rows are all among the first `end`.
      const auto tell_before = [&](std::uint32_t end) {
        const std::uint32_t told_before = told;
        while (told < entered) {
          const auto more = static_cast<std::uint32_t>(this->count(peers.rank, told));
          if (done + more > end) break;
          done += more;
          ++told;
        }
        if (told == told_before || stopped) return;
        for (int step = 1; step < peers.size; ++step) tell_after_stores(this->peer_at(step), memory.rows_come, told);
      };
      const auto drain = [&] {
        sm90::wait_until_stores_have_read();
        free_before(stored);
        sm90::wait_for_stores();
        tell_before(stored);
      };
      for (std::uint32_t c = 0; c < all; ++c) {
        const std::int64_t token = this->first_token(peers.rank, c), count = this->count(peers.rank, c);
        if (!stopped && count > 0 && c >= slots && !taken.have(c - slots + 1)) {
          if (leads()) drain();
          stopped = !taken.wait(c - slots + 1);
        }
        ++entered;
        if (!leads()) continue;
        std::byte* const slot = memory.slots + cut.normed(peers.rank, block, c);
        for (std::int64_t row = 0; row < count; ++row, ++stored) {
          const std::uint32_t group = stored % kGroups, lap = stored / kGroups;
          if (!barriers.normed_full[group].has_ended(static_cast<int>(lap & 1))) {
            drain();
            await(barriers.normed_full[group], lap);
          }
          const std::uint32_t from = sm90::shared_address(shared + room.normed(group));
          if (!stopped)
            for (int step = 1; step < peers.size; ++step)
              sm90::store_bytes(peers.at(this->peer_at(step), slot + static_cast<std::size_t>(row) * row_bytes), from,
                                row_bytes);
          sm90::store_bytes(rows.y_row(token + row), from, row_bytes);
          sm90::commit_stores();
          sm90::wait_until_stores_have_read<1>();
          free_before(stored);  // all but this row
          sm90::wait_for_stores<2>();
          if (stored >= 2) tell_before(stored - 1);
        }
      }
      if (leads()) drain();
    }

    __device__ void copy_out() const {
      const std::uint32_t all = pieces();
      Flags come(*this, memory.rows_come);
      const auto row_bytes = static_cast<std::uint32_t>(rows.y_bytes());
      bool stopped = false;
      std::uint32_t loaded = 0, copied = 0;  // pieces
      while (copied < all) {
        if (loaded < all && loaded - copied < kThrough) {
          const Piece one = piece(loaded);
          bool has_come = stopped || come.have(one.chunk + 1);
          if (!has_come && loaded == copied) {
            stopped = !come.wait(one.chunk + 1);
            has_come = true;
          }
          if (has_come) {
            if (leads()) load_normed(one, loaded, copied, row_bytes);
            ++loaded;
            continue;
          }
        }
        if (leads()) {
          const Piece one = piece(copied);
          await(barriers.copy_full[copied % kThrough], copied / kThrough);
          if (!stopped) this->tell(one.peer, memory.rows_taken, one.chunk + 1);
          if (one.rows > 0)
            sm90::store_bytes(rows.y_row(this->first_token(one.peer, one.chunk)),
                              sm90::shared_address(shared + room.copy(copied % kThrough)), one.rows * row_bytes);
          sm90::commit_stores();
        }
        ++copied;
      }
      if (leads()) sm90::wait_for_stores();
    }

    // Into the slot of piece `number` - kThrough, whose stores are a group of `copied` so far.
    __device__ void load_normed(const Piece& one, std::uint32_t number, std::uint32_t copied,
                                std::uint32_t row_bytes) const {
      switch (number - copied) {
        case 0:
          sm90::wait_until_stores_have_read<2>();
          break;
        case 1:
          sm90::wait_until_stores_have_read<1>();
          break;
        default:
          sm90::wait_until_stores_have_read();
      }
      sm90::Mbarrier& full = barriers.copy_full[number % kThrough];
      full.arrive_expecting(one.rows * row_bytes);
      if (one.rows == 0) return;
      sm90::fence_async_proxy_of_all_memory();
      sm90::copy_bytes(sm90::shared_address(shared + room.copy(number % kThrough)),
                       memory.slots + cut.normed(one.peer, block, one.chunk), one.rows * row_bytes, full.address());
    }
  };
};

}  // namespace heddle
