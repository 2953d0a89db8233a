// A pipelined call whose x and y lie in symmetric memory: the owner of a row reads all ranks' shares of it where they lie,
// and writes the normalised row into every rank's y. (N-1)/N S bytes come to a rank and as many leave it, each once, and no
// row is copied on its way.
//
// Blocks meet twice, each with the same block of the other ranks. At the start: the others' x is complete, and nobody
// reads y any more, since both hold for a rank whose kernel has started. At the end: this rank's x has been read, its y
// has come. The flags are those of pipelined_norm.cuh, and such a call counts as one chunk.
#pragma once

#include "fused/all_reduce_norm/norm_call.cuh"

namespace heddle {

// A block has every blocks()-th of its rank's rows.
template <class X, class Y>
struct DirectNorm {
  NormRows<X, Y> rows;

  // By a thread of the CPU; direct_norm_sm90.cuh is the kernel.
  template <Group G, PeerAddressing P>
  requires kOneLane<G>
  void operator()(const G& group, const P& peers, const AllReduceNormMemory& memory) const {
    NormBlockState& state = memory.blocks[group.block()];
    const NormFlags<P> flags{peers, memory, group.block(), state.chunks};
    flags.tell_all(memory.shares_come, 1);
    if (!flags.wait_for_all(memory.shares_come, 1)) return;
    for (std::int64_t token = rows.rows.begin(peers.rank) + group.block(); token < rows.rows.end(peers.rank);
         token += group.blocks()) {
      rows.add_row(group, peers.size, token, [&](int p) { return peers.at(p, rows.x_row(token)); });
      rows.norm_row(group, token, 0, nullptr, 0, [&](std::size_t i, const Packet& packet) {
        for (int step = 1; step < peers.size; ++step)
          store_packet(peers.at(flags.peer_at(step), rows.y_row(token)), i, rows.y_bytes(), packet);
      });
    }
    flags.tell_all(memory.rows_come, 1);
    if (!flags.wait_for_all(memory.rows_come, 1)) return;
    ++state.chunks;
  }
};

}  // namespace heddle
