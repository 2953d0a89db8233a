// bench flag: the round trips; compiled by the CUDA compiler in builds with CUDA.
#include "cli/bench/flag.h"
#include "device/enqueue_body.h"
#include "device/one_sided.h"

namespace heddle {
namespace {

struct PassFlag {
  Peers peers;
  FlagRounds rounds;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    for (std::uint64_t i = rounds.earlier + 1; i <= rounds.earlier + rounds.rounds; ++i) {
      if (rounds.turn == FlagRounds::Turn::first) raise(group, i);
      if (!wait_until(group, peers, rounds.peer, rounds.flag, i, "flag rounds")) return;
      if (rounds.turn == FlagRounds::Turn::second) raise(group, i);
    }
  }

  template <Group G>
  HEDDLE_HOST_DEVICE void raise(const G& group, std::uint64_t value) const {
    if (rounds.order == Order::release) return signal(group, peers, rounds.peer, rounds.flag, value);
    if (group.lane() == 0) atomic_store<Order::relaxed>(peers.at(rounds.peer, rounds.flag), value);
  }
};

}  // namespace

void enqueue_flag_rounds(const Fabric& fabric, const FlagRounds& rounds, Stream& stream) {
  enqueue_body(stream, {.blocks = 1, .threads = 32}, PassFlag{fabric.peers(), rounds});
}

}  // namespace heddle
