// The control block that the ranks of a run share beside their heaps. Its memory starts as zeros, which mean "not yet"
// for every field, and is accessed with the atomics of device/atomics.h, by threads and processes alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device/peers.h"
#include "device/wait_record.h"
#include "fabric/liveness.h"
#include "fabric/team_entries.h"

namespace heddle {

inline constexpr int kMaxShmTeams = 256;  // teams that use barriers; a world of 8 has 255 subsets

// The slot of one rank. Only that rank writes it.
struct alignas(64) RankSlot {
  enum State : std::uint32_t { absent, joined, left, failed };

  std::uint32_t state;
  std::int32_t process;       // 0 where ranks are threads
  std::uint64_t start_time;   // of the process, as in /proc: an id may be used again
  std::uint64_t beats;        // grows while the process runs
  std::uint64_t allocations;  // calls of allocate() so far; the sizes of the last two
  std::uint64_t allocation_bytes[2];
  std::uint32_t waits_for;  // rank + 1 of the peer that it waits for; 0: it does not wait
};

// How many barriers of a team one rank has entered.
struct alignas(64) TeamEpoch {
  std::uint64_t entered;
};

// The text of the first error. The rank that detects it writes it, and every rank throws it.
struct Trouble {
  enum State : std::uint32_t { none, being_written, complete };
  enum Kind : std::uint32_t { failure, timeout, invalid_argument, input };

  std::uint32_t state;
  std::uint32_t kind;
  char text[480];  // ends in a zero
};

struct ShmControl {
  static constexpr std::uint64_t kMagic = 0x33'6d'68'73'64'65'48;  // "Hedshm3": the layout's version is in it

  std::uint64_t magic;  // written last by rank 0: release of the five below
  std::uint64_t world_size;
  std::uint64_t heap_bytes;
  std::int64_t first_rank;    // of FabricOptions
  std::int32_t heap_process;  // whose file the heaps are
  std::int32_t heap_file;
  std::uint64_t joined;     // ranks that have come
  std::uint64_t everybody;  // 1 once all ranks have joined and the object's name is removed
  WaitRecord record;        // shared by all ranks: when one wait gives up, all do
  Trouble trouble;
  RankSlot ranks[kMaxPeers];
  TeamEntry teams[kMaxShmTeams];
  TeamEpoch team_epochs[kMaxShmTeams][kMaxPeers];
};

// The number of the team of these ranks, in any order. Throws Failure if there are more than kMaxShmTeams.
int number_of(ShmControl& control, std::span<const int> team);

// The rank as its slot says, without the time of its silence, which a monitor knows.
RankStatus status_of(const ShmControl& control, int rank);

// Records an error, unless there is one already, and ends every rank's waits. `about` is the rank that caused it.
void declare_trouble(ShmControl& control, Trouble::Kind kind, int rank, int about, std::string_view text);

// Whether there is an error.
bool in_trouble(const ShmControl& control);

// Throws the error that declare_trouble() recorded.
[[noreturn]] void throw_trouble(ShmControl& control);

}  // namespace heddle
