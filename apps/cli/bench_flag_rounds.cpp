// bench flag: the rounds themselves; the CUDA compiler's where there is one.
#include "cli/bench_flag.h"
#include "fabric/enqueue_body.h"
#include "fabric/one_sided.h"

namespace heddle {
namespace {

struct PassFlag {
  Peers peers;
  FlagRounds rounds;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    for (std::uint64_t i = rounds.earlier + 1; i <= rounds.earlier + rounds.rounds; ++i) {
      if (rounds.turn == FlagRounds::Turn::first) signal(group, peers, rounds.peer, rounds.flag, i);
      if (!wait_until(group, peers, rounds.peer, rounds.flag, i, "flag rounds")) return;
      if (rounds.turn == FlagRounds::Turn::second) signal(group, peers, rounds.peer, rounds.flag, i);
    }
  }
};

}  // namespace

void enqueue_flag_rounds(const Fabric& fabric, const FlagRounds& rounds, Stream& stream) {
  enqueue_body(stream, {.blocks = 1, .threads = 32}, PassFlag{fabric.peers(), rounds});
}

}  // namespace heddle
