// 05. A schedule carried out: all-gather on a ring. The schedule says who sends which piece to whom; the fabric moves
// it.
//
// In each step every rank hands on the piece that it received last, and raises the receiver's flag to the step's
// number.
#include "example.h"
#include "schedule/ring.h"

using namespace heddle;

constexpr int kPiece = 4096;  // ints in a rank's piece

struct RingAllGather {
  Peers peers;
  int* pieces;  // [size, kPiece]: the own one is there, the others come
  std::uint64_t* arrived;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const schedule::Ring ring{peers.size};
    for (int step = 0; step < ring.steps(); ++step) {
      const auto transfer = ring.at(peers.rank, step);
      int* piece = pieces + transfer.send * kPiece;
      put(group, peers, transfer.to, piece, piece, kPiece * sizeof(int));
      signal(group, peers, transfer.to, arrived, static_cast<std::uint64_t>(step) + 1);
      if (!wait_until(group, peers, transfer.from, arrived, static_cast<std::uint64_t>(step) + 1, "ring step")) return;
    }
  }
};

struct FillOwn {
  Peers peers;
  int* pieces;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    for (int i = group.lane(); i < kPiece; i += group.lanes()) pieces[peers.rank * kPiece + i] = peers.rank;
  }
};

void rank_main(Fabric& fabric, Stream& stream) {
  int* pieces = example::allocate<int>(fabric, static_cast<std::size_t>(fabric.size()) * kPiece);
  auto* arrived = example::allocate<std::uint64_t>(fabric);
  enqueue_body(stream, {}, FillOwn{fabric.peers(), pieces});
  enqueue_body(stream, {}, RingAllGather{fabric.peers(), pieces, arrived});
  int right = 0;
  for (int rank = 0; rank < fabric.size(); ++rank)
    right += example::read(fabric, stream, pieces + (rank + 1) * kPiece - 1) == rank ? 1 : 0;
  fmt::print("rank {} has {} of {} pieces\n", fabric.rank(), right, fabric.size());
  fabric.barrier(stream);
  fabric.synchronize(stream);
}
