// Which rank a wait is in vain for, by one rule and in one wording. Fabrics learn in different ways how long a rank has
// been silent and whom it waits for: `shm` reads counters in shared memory (monitor.h), `mpi` hears heartbeats
// (rank_watch.h), and `nvlink` has a host fabric that does either. All functions are pure but for a look at /proc.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/tag.h"
#include "fabric/process_state.h"

namespace heddle {

// What a fabric knows of a rank.
struct RankStatus {
  enum Stage : std::uint8_t {
    absent,  // has not come so far
    joined,
    closing,  // has closed its fabric, but must live until all have
    left      // may end
  };

  Stage stage = joined;
  ProcessIdentity process{};           // all zeros where ranks are threads
  std::chrono::nanoseconds silence{};  // since its last sign of life, in time in which this process ran itself
  int waits_for = -1;                  // a rank, while it waits
  Tag tag{};                           // of that wait, where it is known
};

struct LivenessLimits {
  std::chrono::nanoseconds beat;      // between two signs of life
  std::chrono::nanoseconds deadline;  // of the fabric's waits
};

struct Loss {
  enum Kind : std::uint8_t {
    none,
    ended,  // a Failure: the process is gone
    silent  // a Timeout: silent for longer than the deadline
  };

  Kind kind = none;
  std::string text;  // "rank 2 (process 4711) has ended"
};

// Whether the rank is lost, so that the run must end. A process that gives signs of life is not lost even if the system
// does not show it.
Loss loss_of(int rank, const RankStatus& status, const LivenessLimits& limits);

// For the error of a wait of `rank` for `from` that has given up (-1: for all): the ranks that have ended, or have been
// silent for a quarter of the deadline; if there are none, the chain of waits that begins with `from` and its last
// rank: "rank 1 waits for rank 2 (barrier); rank 2 is late: it does not wait for anybody". At most a few hundred
// characters; empty if nothing is known. `ranks` is by rank; the own entry is not looked at. Names rank 0 `first_rank`.
std::string who_is_late(int rank, int from, std::span<const RankStatus> ranks, const LivenessLimits& limits,
                        int first_rank = 0);

// A machine of which some ranks are, by its name.
struct MachineRanks {
  std::string name;
  std::vector<int> ranks;
};

// Of the machines other than that of `rank`, those of which nothing has come for a quarter of the deadline, though no
// process there has ended or is stopped: "machine 10.0.0.2 is silent: ranks 2, 3 are on it". Empty without such.
std::string silent_machines(int rank, std::span<const MachineRanks> machines, std::span<const RankStatus> ranks,
                            const LivenessLimits& limits);

// "rank 2 (process 4711)"; "rank 2" where the process is 0.
std::string name_of_rank(int rank, std::int32_t process);

// "rank 2 has ended with an error of its own": what a rank tells the others when an exception ends it.
std::string ended_by_exception(int rank, std::int32_t process);

// "ranks 2, 3 WHAT", or "rank 2 WHAT" with `what_one`, of at most 16 ranks; empty without ranks.
std::string ranks_that(std::span<const int> ranks, std::string_view what_one, std::string_view what);

// "rank 2 has not started"; empty without ranks.
std::string not_started(std::span<const int> ranks);

}  // namespace heddle
