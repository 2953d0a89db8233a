// 03. Atomics: all ranks draw tickets from one counter, which lies with rank 0. No ticket is drawn twice.
//
// Order and scope are template arguments; the defaults, acq_rel and system, hold between GPUs.
#include "example.h"

using namespace heddle;

constexpr int kDraws = 1000;

struct DrawTickets {
  Peers peers;
  std::uint64_t* counter;  // rank 0's counts
  std::uint64_t* drawn;    // rank 0's is the sum of all tickets

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() != 0) return;
    std::uint64_t sum = 0;
    for (int i = 0; i < kDraws; ++i) sum += atomic_add<Order::relaxed>(peers.at(0, counter), 1);
    atomic_add(peers.at(0, drawn), sum);
  }
};

void rank_main(Fabric& fabric, Stream& stream) {
  auto* counter = example::allocate<std::uint64_t>(fabric);
  auto* drawn = example::allocate<std::uint64_t>(fabric);
  enqueue_body(stream, {}, DrawTickets{fabric.peers(), counter, drawn});
  fabric.barrier(stream);
  if (fabric.rank() == 0) {
    const std::uint64_t tickets = example::read(fabric, stream, counter);
    fmt::print("{} tickets were drawn; their sum is {}, expected {}\n", tickets, example::read(fabric, stream, drawn),
               tickets * (tickets - 1) / 2);
  }
  fabric.barrier(stream);
  fabric.synchronize(stream);
}
