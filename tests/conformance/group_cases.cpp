// Waits of every kind of group: on a GPU a warp, two warps together and a single thread of the same block each pass
// messages with their like of the other ranks, at their own pace; on the CPU one thread does so for each.
#include <cstring>
#include <vector>

#include "conformance/cases.h"
#include "device/enqueue_body.h"
#include "device/one_sided.h"

namespace heddle::conformance {
namespace {

constexpr int kGroups = 3;
constexpr int kGroupThreads = 128;
constexpr std::size_t kGroupBytes = 8 * 61;  // of a message: no whole number of a group's lanes
constexpr std::size_t kGroupWords = kGroupBytes / 8;

struct Lines {  // one a group; a message's words are the round's
  std::uint64_t inbox[kGroups][64];
};

struct Outcome {
  std::uint64_t wrong[kGroups];
  std::uint64_t ended_well[kGroups];  // lanes that say so
};

struct GroupPingPong {
  Peers peers;
  Lines* lines;      // symmetric
  Lines* messages;   // own
  Semaphore* full;   // symmetric, kGroups of them
  Semaphore* empty;  // symmetric, kGroups of them
  Outcome* outcome;  // own
  int rounds;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if constexpr (std::is_same_v<G, HostThread>) {
      for (int index = 0; index < kGroups; ++index) pass_messages(group, index);
      return;
    }
#ifdef __CUDA_ARCH__
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (warp == 0) return pass_messages(DeviceWarp{}, 0);
    if (warp < 3) return pass_messages(DeviceWarps(1, 2, 1), 1);
    if (threadIdx.x == 3 * 32 + 7) return pass_messages(DeviceThread{}, 2);
#endif
  }

  template <VotingGroup G>
  HEDDLE_HOST_DEVICE void pass_messages(const G& group, int index) const {
    const int next = (peers.rank + 1) % peers.size, previous = (peers.rank + peers.size - 1) % peers.size;
    std::uint64_t* const message = messages->inbox[index];
    std::uint64_t* const inbox = lines->inbox[index];
    const auto lane = static_cast<std::size_t>(group.lane()), lanes = static_cast<std::size_t>(group.lanes());
    const auto word = [&](int rank, int round, std::size_t i) {
      return static_cast<std::uint64_t>(rank) << 48 ^ static_cast<std::uint64_t>(round) << 16 ^ i;
    };
    for (int round = 1; round <= rounds; ++round) {
      for (std::size_t i = lane; i < kGroupWords; i += lanes) message[i] = word(peers.rank, round, i);
      group.sync();
      put(group, peers, next, inbox, message, kGroupBytes);
      signal_next(group, peers, next, full + index);
      if (!wait_next(group, peers, previous, full + index, "message")) return;
      std::uint64_t wrong = 0;
      // From the other end: what a lane reads, another has put.
      for (std::size_t i = lane; i < kGroupWords; i += lanes)
        if (inbox[kGroupWords - 1 - i] != word(previous, round, kGroupWords - 1 - i)) ++wrong;
      if (wrong != 0) atomic_add<Order::relaxed>(&outcome->wrong[index], wrong);
      signal_next(group, peers, previous, empty + index);
      if (!wait_next(group, peers, next, empty + index, "it was read")) return;
    }
    // One lane that says no is heard by all; then all say yes.
    if (agree(group, group.lane() != group.lanes() - 1)) return;
    if (agree(group, true)) atomic_add<Order::relaxed>(&outcome->ended_well[index], 1);
  }
};

}  // namespace

void groups_wait_apart(Context& context) {
  Fabric& fabric = context.fabric();
  auto* semaphores = reinterpret_cast<Semaphore*>(fabric.allocate(2 * kGroups * sizeof(Semaphore)).data);
  auto* messages = reinterpret_cast<Lines*>(context.own());
  auto* outcome = reinterpret_cast<Outcome*>(messages + 1);
  context.write(outcome, Bytes(sizeof(Outcome)));
  context.meet();
  enqueue_body(context.stream(), {.blocks = 1, .threads = kGroupThreads},
               GroupPingPong{fabric.peers(), reinterpret_cast<Lines*>(context.left()), messages, semaphores,
                             semaphores + kGroups, outcome, context.rounds()});
  Outcome got{};
  const Bytes bytes = context.read(outcome, sizeof(got));
  std::memcpy(&got, bytes.data(), sizeof(got));
  const bool gpu = fabric.device().kind == DeviceKind::cuda;
  const std::uint64_t lanes[kGroups] = {gpu ? 32U : 1U, gpu ? 64U : 1U, 1};
  for (int index = 0; index < kGroups; ++index) {
    expect(got.wrong[index] == 0, "group {}: {} words were not their round's", index, got.wrong[index]);
    expect(got.ended_well[index] == lanes[index], "group {}: {} lanes have agreed, of {}", index, got.ended_well[index],
           lanes[index]);
  }
  context.meet();
}

}  // namespace heddle::conformance
