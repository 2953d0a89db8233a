// 04. Epochs: a producer hands 1 000 items to a consumer through two slots, without ever resetting a flag.
//
// A flag only grows: its value is the epoch, the number of the item. The producer waits until the consumer has emptied
// the slot two items ago, so the two run ahead of each other by at most two items.
#include "example.h"

using namespace heddle;

constexpr std::uint64_t kItems = 1'000;
constexpr std::uint64_t kSlots = 2;

struct Pipe {
  Peers peers;
  std::uint64_t* slots;    // of kSlots; the consumer's are used
  std::uint64_t* filled;   // items that lie in the consumer's slots or were taken; raised there by the producer
  std::uint64_t* emptied;  // items taken; raised at the producer by the consumer
  std::uint64_t* sum;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const int producer = 0;
    const int consumer = peers.size - 1;
    if (peers.rank == producer) {
      for (std::uint64_t item = 1; item <= kItems; ++item) {
        if (item > kSlots && !wait_until(group, peers, consumer, emptied, item - kSlots, "an empty slot")) return;
        if (group.lane() == 0) store(peers, consumer, &slots[item % kSlots], item * item);
        signal(group, peers, consumer, filled, item);
      }
    }
    if (peers.rank == consumer && consumer != producer) {
      for (std::uint64_t item = 1; item <= kItems; ++item) {
        if (!wait_until(group, peers, producer, filled, item, "an item")) return;
        if (group.lane() == 0) *sum += slots[item % kSlots];
        signal(group, peers, producer, emptied, item);
      }
    }
  }
};

void rank_main(Fabric& fabric, Stream& stream) {
  require(fabric.size() >= 2, "a pipe needs two ranks");
  auto* slots = example::allocate<std::uint64_t>(fabric, kSlots);
  auto* filled = example::allocate<std::uint64_t>(fabric);
  auto* emptied = example::allocate<std::uint64_t>(fabric);
  auto* sum = example::allocate<std::uint64_t>(fabric);
  enqueue_body(stream, {}, Pipe{fabric.peers(), slots, filled, emptied, sum});
  fabric.barrier(stream);
  if (fabric.rank() == fabric.size() - 1)
    fmt::print("the sum of the first {} squares is {}, expected {}\n", kItems, example::read(fabric, stream, sum),
               kItems * (kItems + 1) * (2 * kItems + 1) / 6);
  fabric.synchronize(stream);
}
