// broadcast on the CPU: the root copies its input into slots of its own and raises a flag at each other rank for each
// slot; the others copy from there. The root waits for no rank until its slots are used up, unless calls are compared.
// Every rank copies each byte once.
#pragma once

#include "collectives/direct.cuh"

namespace heddle {

struct PipelinedBroadcast {
  const std::byte* input;  // of the root; any memory
  std::byte* output;       // may be input
  std::size_t bytes;
  int root;

  static constexpr std::size_t kSlots = 8;
  HEDDLE_HOST_DEVICE static std::size_t slot_bytes(const CollectiveMemory& memory) {
    return memory.slots_bytes / kSlots / kPacketBytes * kPacketBytes;
  }

  // One block.
  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void operator()(const G& group, const P& peers, const CollectiveMemory& memory) const {
    static_assert(kOneLane<G>);
    std::uint64_t& parts = memory.root_parts[root];
    const std::size_t most = slot_bytes(memory);
    for (std::size_t begin = 0; begin < bytes; begin += most, ++parts) {
      const std::size_t size = bytes - begin < most ? bytes - begin : most;
      std::byte* const slot = memory.root_slots + parts % kSlots * most;
      if (peers.rank == root) {
        for (int p = 0; p < peers.size; ++p)
          if (p != root && parts >= kSlots && !wait(peers, p, memory.parts_taken + p, parts - kSlots + 1)) return;
        copy_here(group, slot, input + begin, size);
        for (int step = 1; step < peers.size; ++step)
          atomic_store(peers.at(AllToAll{peers.size}.at(root, step).to, memory.parts_come + root), parts + 1);
        if (output != input) copy_here(group, output + begin, input + begin, size);
      } else {
        if (!wait(peers, root, memory.parts_come + root, parts + 1)) return;
        copy_here(group, output + begin, peers.at(root, slot), size);
        atomic_store(peers.at(root, memory.parts_taken + peers.rank), parts + 1);
      }
    }
  }

 private:
  template <PeerAddressing P>
  [[nodiscard]] HEDDLE_HOST_DEVICE static bool wait(const P& peers, int from, const std::uint64_t* flag,
                                                    std::uint64_t parts) {
    return spin_until(peers.waits, why(peers, from, "broadcast"), flag, parts);
  }
};

}  // namespace heddle
