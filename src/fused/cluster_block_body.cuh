// What the bodies of fused blocks have in common (decode_block_body.cuh, latent_block/): one block of a cluster, the unit that
// the cluster computes, and where operands lie in the block's shared memory.
#pragma once

#include <type_traits>

#include "device/cluster/cluster_gather.h"

namespace heddle {

// Shape: a value, which a body keeps a copy of, or a reference. Memory: where what lies, in vectors; made of the shape, the
// bytes of an element and `more`. Barriers: the body's own.
template <class T, class Team, class Barrier, class Shape, class Memory, class Barriers, class Work>
class ClusterBlockBody {
 public:
  // `memory`: Memory.end vectors of shared memory. What is given by reference must outlive this.
  template <class... More>
  HEDDLE_HOST_DEVICE ClusterBlockBody(const Team& team, const std::remove_cvref_t<Shape>& shape, int unit,
                                      Barriers& barriers, Vector16* memory, Work& work, const KernelWaits& waits,
                                      More... more)
      : team_(team),
        shape_(shape),
        unit_(unit),
        barriers_(barriers),
        memory_(memory),
        at_(shape, static_cast<int>(sizeof(T)), more...),
        work_(work),
        waits_(waits) {}

 protected:
  HEDDLE_HOST_DEVICE float* floats(int vector) const { return reinterpret_cast<float*>(memory_ + vector); }
  HEDDLE_HOST_DEVICE T* elements(int vector) const { return reinterpret_cast<T*>(memory_ + vector); }

  // Of segments [blocks][count] each block has written its own; afterwards it has all, for its lanes. Once for each of the
  // barriers, so only the first of a gatherer's two buffers is there.
  HEDDLE_HOST_DEVICE void gather_directly(GatherBarriers<Barrier>& barriers, int segments, int count) {
    team_.sync();  // all lanes have written the block's own segment
    gatherer(barriers, segments, count).gather_directly(memory_ + segments + team_.block() * count, count);
  }
  // The same by the tree.
  HEDDLE_HOST_DEVICE void gather_by_tree(GatherBarriers<Barrier>& barriers, int segments, int count) {
    team_.sync();
    gatherer(barriers, segments, count).gather(memory_ + segments + team_.block() * count, count);
  }

  const Team& team_;
  const Shape shape_;
  int unit_;
  Barriers& barriers_;
  Vector16* memory_;
  Memory at_;
  Work& work_;
  const KernelWaits& waits_;

 private:
  HEDDLE_HOST_DEVICE ClusterGatherer<Team, Barrier> gatherer(GatherBarriers<Barrier>& barriers, int segments,
                                                             int count) const {
    return {team_, schedule::Peers::pairs, barriers, memory_ + segments, count, waits_};
  }
};

}  // namespace heddle
