// Detects calls that differ between ranks which share memory, at the cost of one cache line per rank.
//
// A call first writes its signature to every other rank. Before a rank's first wait for a peer ends, it has read and
// compared that peer's signature. So a call that begins with a barrier waits for nothing more than it would anyway;
// every other call waits for all signatures before it begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "fabric/fabric.h"

namespace heddle {

struct WaitReason;

// A rank's description of a call: 64 bytes, one cache line of the heap. The number is written last; it tells one call
// from the next.
struct CallSignature {
  static constexpr int kFields = 7;
  std::uint64_t values[kFields] = {};  // collective, dtype, count, root, kind of memory, offsets of two buffers
  std::uint64_t number = 0;
};
static_assert(sizeof(CallSignature) == 64);

// The text of an error where the two differ, "all_reduce: the ranks' calls differ in their count: rank 0 has 8, rank 1
// has 7"; else empty. Ranks are ranks of the world.
std::string difference_of(const CallSignature& mine, int rank, const CallSignature& other, int other_rank);

// One rank's side. Only tasks of a stream call its functions, in stream order.
class CallCheck {
 public:
  // In the symmetric heap, zeroed: signatures [2][team size], flags [team size].
  CallCheck(const Peers& peers, CallSignature* signatures, std::uint64_t* flags);

  // Begins the next call.
  void announce(const CallSignature& mine);
  // Returns when the peer, a rank of the world, has announced this call, too. Returns false past the deadline, which is
  // then reported (spin.h). Throws InvalidArgument if the calls differ, after every other rank has seen a difference,
  // so that no rank mistakes this rank's end for the cause.
  bool hear(int world_rank);
  // The same for all ranks of the team.
  bool hear_all();

 private:
  WaitReason reason(int peer) const;
  [[noreturn]] void end(const std::string& difference);

  const Peers& peers_;
  CallSignature* signatures_;
  std::uint64_t* flags_;
  CallSignature mine_;
  std::vector<std::uint64_t> heard_;  // by rank of the team: the last call compared
};

// Peers whose waits compare calls first.
struct CheckedWaits : WaitLimit {
  CallCheck* check = nullptr;
};
struct CheckedPeers : Peers {
  CheckedWaits waits;
};

// spin_until of spin.h for CheckedPeers; `More` stands for its further parameters. (spin.h includes CUDA's headers, so
// this header cannot include it; its callers do.)
template <class Reason, class... More>
[[nodiscard]] bool spin_until(const CheckedWaits& waits, const Reason& reason, const std::uint64_t* place,
                              const More&... more) {
  return waits.check->hear(reason.from) && spin_until(static_cast<const WaitLimit&>(waits), reason, place, more...);
}

}  // namespace heddle
