// 02. Message passing: rank 0 puts a message into everybody's memory and raises a flag there; they wait for it.
//
// `signal` releases what the group wrote before it, `wait_until` acquires: who has seen the flag sees the message. It
// answers false when the deadline has passed; the body then returns, and `synchronize` on the host throws.
#include "example.h"

using namespace heddle;

constexpr int kCount = 1000;

struct Broadcast {
  Peers peers;
  const int* message;  // of kCount
  int* inbox;          // of kCount
  std::uint64_t* flag;
  long long* sum;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (peers.rank == 0) {
      for (int peer = 0; peer < peers.size; ++peer) {
        put(group, peers, peer, inbox, message, kCount * sizeof(int));
        signal(group, peers, peer, flag, 1);
      }
    }
    if (!wait_until(group, peers, /*from=*/0, flag, 1, "message")) return;
    if (group.lane() == 0) {
      *sum = 0;
      for (int i = 0; i < kCount; ++i) *sum += inbox[i];
    }
  }
};

struct WriteMessage {
  int* message;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    for (int i = group.lane(); i < kCount; i += group.lanes()) message[i] = i;
  }
};

void rank_main(Fabric& fabric, Stream& stream) {
  int* message = example::allocate<int>(fabric, kCount);
  int* inbox = example::allocate<int>(fabric, kCount);
  auto* flag = example::allocate<std::uint64_t>(fabric);
  auto* sum = example::allocate<long long>(fabric);
  enqueue_body(stream, {}, WriteMessage{message});
  enqueue_body(stream, {}, Broadcast{fabric.peers(), message, inbox, flag, sum});
  fmt::print("rank {}: the message's sum is {}, expected {}\n", fabric.rank(), example::read(fabric, stream, sum),
             kCount * (kCount - 1) / 2);
  fabric.barrier(stream);
  fabric.synchronize(stream);
}
