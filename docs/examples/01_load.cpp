// 01. Load: every rank reads its right neighbour's number.
//
// The body is the same source for a thread of the CPU and a block of a GPU. An address is always the own one; the
// second argument says whose memory is meant.
#include "example.h"

using namespace heddle;

struct WriteOwn {
  Peers peers;
  int* number;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) *number = 100 + peers.rank;
  }
};

struct ReadNeighbour {
  Peers peers;
  const int* number;
  int* seen;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) *seen = load(peers, (peers.rank + 1) % peers.size, number);
  }
};

void rank_main(Fabric& fabric, Stream& stream) {
  int* number = example::allocate<int>(fabric);
  int* seen = example::allocate<int>(fabric);
  enqueue_body(stream, {}, WriteOwn{fabric.peers(), number});
  fabric.barrier(stream);  // now every number is there
  enqueue_body(stream, {}, ReadNeighbour{fabric.peers(), number, seen});
  fabric.barrier(stream);  // nobody leaves while a neighbour still reads
  fmt::print("rank {} has read {}\n", fabric.rank(), example::read(fabric, stream, seen));
}
