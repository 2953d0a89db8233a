// all_reduce of large buffers by stores alone. Each rank owns a piece. Every rank pushes its share of a piece, chunk by
// chunk, into slots of the owner and raises a flag there. The owner adds the shares in rank order, pushes the sum to
// every rank's output and raises a flag there, which means: the sum has arrived, and its slots are free. Each rank
// sends 2 (N-1)/N S bytes.
//
// No rank waits at the start. Pushing into slots is safe, even if the last call had other blocks and so other slots: a
// call ends when all sums have arrived, and by then every owner has added all shares of all its chunks. Writing a
// peer's output is safe because the peer's share of that chunk has arrived: the peer is in this call and no longer
// reads that part of its input.
//
// On a GPU some warps of a block push and others add, each group with one more warp for its flags. So both directions
// of the links are busy from the first chunk to the last.
#pragma once

#include "collectives/direct.cuh"
#include "collectives/pipeline.cuh"
#include "device/warp_chunks.cuh"

namespace heddle {

template <class T, int kAtOnce>
struct PipelinedAllReduce {
  const std::byte* input;  // of any memory
  std::byte* output;       // of symmetric memory; may be input
  ChunkCut cut;

  static constexpr int kWarps = 8;                             // push; as many add
  static constexpr int kBlockThreads = 2 * 32 * (kWarps + 1);  // on a GPU

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    BlockState& state = memory.blocks[group.block()];
    const Call<P> call{*this, cut, peers, memory, group.block(), state.chunks};
    if constexpr (kOneLane<G>)
      call.alone(group, state);
    else
      call.shared_out(state);
  }

  template <PeerAddressing P>
  struct Call {
    const PipelinedAllReduce& buffers;
    const ChunkCut& cut;
    const P& peers;
    const CollectiveMemory& memory;
    int block;
    std::uint64_t before;  // chunks of this block in all calls before

    // This rank's flags, which count chunks: shares that have come from `from`, sums that have come from `from`.
    HEDDLE_HOST_DEVICE std::uint64_t* come(int from) const { return memory.shares_come + block * peers.size + from; }
    HEDDLE_HOST_DEVICE std::uint64_t* summed(int from) const { return memory.sums_come + block * peers.size + from; }

    HEDDLE_HOST_DEVICE void tell(int peer, std::uint64_t* flag, std::uint32_t chunks) const {
      atomic_store<Order::release, Scope::system>(peers.at(peer, flag), before + chunks);
    }
    [[nodiscard]] HEDDLE_HOST_DEVICE bool wait(int from, const std::uint64_t* flag, std::uint32_t chunks) const {
      return spin_until(peers.waits, why(peers, from, "all-reduce"), flag, before + chunks);
    }

    template <Group Lanes>
    HEDDLE_HOST_DEVICE void push(const Lanes& lanes, std::uint32_t c) const {
      std::byte* const slot = memory.slots + cut.slot(peers.rank, block, c);
      for (int step = 1; step < peers.size; ++step) {
        const int owner = AllToAll{peers.size}.at(peers.rank, step).to;
        copy_here(lanes, peers.at(owner, slot), buffers.input + cut.begin(owner, block, c), cut.size(owner, block, c));
      }
    }

    template <Group Lanes>
    HEDDLE_HOST_DEVICE void add(const Lanes& lanes, std::uint32_t c) const {
      const std::size_t begin = cut.begin(peers.rank, block, c);
      const auto share = [&](int p) -> const std::byte* {
        return p == peers.rank ? buffers.input + begin : memory.slots + cut.slot(p, block, c);
      };
      const auto sum = [&](int step) {
        return step == peers.size - 1
                   ? buffers.output + begin
                   : peers.at(AllToAll{peers.size}.at(peers.rank, step + 1).to, buffers.output + begin);
      };
      sum_to<T, kAtOnce>(lanes, peers.size, share, peers.size, sum, cut.size(peers.rank, block, c));
    }

    // One CPU thread alternates between pushing and adding; it pushes ahead as far as it has slots.
    template <Group Lane>
    HEDDLE_HOST_DEVICE void alone(const Lane& lane, BlockState& state) const {
      const std::uint32_t chunks = cut.chunks(block), ahead = cut.slots() - 1;
      const auto wait_for_all = [&](auto flag, std::uint32_t count) {
        for (int p = 0; p < peers.size; ++p)
          if (p != peers.rank && !wait(p, flag(p), count)) return false;
        return true;
      };
      const auto tell_all = [&](std::uint64_t* flag, std::uint32_t count) {
        for (int step = 1; step < peers.size; ++step) tell(AllToAll{peers.size}.at(peers.rank, step).to, flag, count);
      };
      const auto come_from = [&](int p) { return come(p); };
      const auto summed_by = [&](int p) { return summed(p); };
      for (std::uint32_t c = 0; c < chunks + ahead; ++c) {
        if (c < chunks) {
          if (c >= cut.slots() && !wait_for_all(summed_by, c - cut.slots() + 1)) return;
          push(lane, c);
          tell_all(come(peers.rank), c + 1);
        }
        if (c < ahead) continue;
        if (!wait_for_all(come_from, c - ahead + 1)) return;
        add(lane, c - ahead);
        tell_all(summed(peers.rank), c - ahead + 1);
      }
      if (wait_for_all(summed_by, chunks)) state.chunks = before + chunks;
    }

#ifdef __CUDACC__
    // By the lanes of a warp, one for each peer.
    template <class Flag>
    [[nodiscard]] __device__ bool warp_waits(const Flag& flag, std::uint32_t count) const {
      bool all = true;
      for (int p = static_cast<int>(threadIdx.x % 32); p < peers.size; p += 32)
        if (p != peers.rank) all = all && wait(p, flag(p), count);
      return __all_sync(~0u, all) != 0;
    }
    __device__ void warp_tells(std::uint64_t* flag, std::uint32_t count) const {
      for (int p = static_cast<int>(threadIdx.x % 32); p < peers.size; p += 32)
        if (p != peers.rank) tell(p, flag, count);
    }

    __device__ void shared_out(BlockState& state) const {
      __shared__ bool stopped[2][2];
      if (threadIdx.x < 4) stopped[threadIdx.x / 2][threadIdx.x % 2] = false;
      __syncthreads();  // and every lane has read the counter
      const int warp = static_cast<int>(threadIdx.x / 32);
      const auto come_from = [&](int p) { return come(p); };
      const auto summed_by = [&](int p) { return summed(p); };
      if (warp < kWarps || warp == 2 * kWarps) {
        const WarpsOfBlock pushing(0, kWarps, 1);
        const auto slots_are_free = [&](std::uint32_t c) {
          return c < cut.slots() || warp_waits(summed_by, c - cut.slots() + 1);
        };
        static_cast<void>(chunk_by_chunk(
            pushing, cut.chunks(block), stopped[0], slots_are_free, [&](std::uint32_t c) { push(pushing, c); },
            [&](std::uint32_t done) { warp_tells(come(peers.rank), done); }));
        return;
      }
      const WarpsOfBlock adding(kWarps, kWarps, 2);
      const bool all_added = chunk_by_chunk(
          adding, cut.chunks(block), stopped[1], [&](std::uint32_t c) { return warp_waits(come_from, c + 1); },
          [&](std::uint32_t c) { add(adding, c); }, [&](std::uint32_t done) { warp_tells(summed(peers.rank), done); });
      if (warp <= 2 * kWarps || !all_added) return;
      if (warp_waits(summed_by, cut.chunks(block)) && threadIdx.x % 32 == 0) state.chunks = before + cut.chunks(block);
    }
#endif
  };
};

}  // namespace heddle
