// How ranks that share memory find out that their calls differ, for the price of a cache line from each.
//
// A call begins by writing what it is to every other rank, and nobody goes past its first wait for a rank before it has
// read and compared that rank's. So a call that begins with a barrier waits for nothing that it would not wait for
// anyway; every other one hears from all before it begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "fabric/fabric.h"

namespace heddle {

struct WaitReason;

// What a rank says of a call: 64 bytes, which lie in one cache line of the heap. The number is written last, and tells
// one call from the next.
struct CallSignature {
  static constexpr int kFields = 7;
  std::uint64_t values[kFields] = {};  // collective, dtype, count, root, kind of memory, offsets of two buffers
  std::uint64_t number = 0;
};
static_assert(sizeof(CallSignature) == 64);

// In words, where they differ: "all_reduce: the ranks' calls differ in their count: rank 0 has 8, rank 1 has 7"; else
// empty. Ranks are of the world.
std::string difference_of(const CallSignature& mine, int rank, const CallSignature& other, int other_rank);

// One rank's side. Its functions are called in the order of a stream, by tasks alone.
class CallCheck {
 public:
  // In the symmetric heap, zeroed: signatures [2][team size], flags [team size].
  CallCheck(const Peers& peers, CallSignature* signatures, std::uint64_t* flags);

  // Begins the next call.
  void announce(const CallSignature& mine);
  // Returns when the peer, a rank of the world, has announced this call, too. False when that has lasted too long,
  // which is then reported (spin.h). Throws InvalidArgument where its call differs, after every other rank has seen a
  // difference: so none of them takes this one's end for the reason.
  bool hear(int world_rank);
  // Of all of the team.
  bool hear_all();

 private:
  WaitReason reason(int peer) const;
  [[noreturn]] void end(const std::string& difference);

  const Peers& peers_;
  CallSignature* signatures_;
  std::uint64_t* flags_;
  CallSignature mine_;
  std::vector<std::uint64_t> heard_;  // by rank of the team: the last call
};

// Peers whose waits hear first.
struct HearingWaits : WaitLimit {
  CallCheck* check = nullptr;
};
struct HearingPeers : Peers {
  HearingWaits waits;
};

// The waits of spin.h, for them; `More` is what follows there. (That header leads to CUDA's, so this one cannot have
// it; whoever waits has.)
template <class Reason, class... More>
[[nodiscard]] bool spin_until(const HearingWaits& waits, const Reason& reason, const std::uint64_t* place,
                              const More&... more) {
  return waits.check->hear(reason.from) && spin_until(static_cast<const WaitLimit&>(waits), reason, place, more...);
}

}  // namespace heddle
