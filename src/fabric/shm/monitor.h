// Watches the other processes of a run, so that a rank that was killed or hangs is named instead of waited for.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "fabric/fabric.h"
#include "fabric/liveness.h"
#include "fabric/shm/control.h"

namespace heddle {

// A thread that increments this rank's `beats` and checks the others' every kInterval. It ends the run when a rank is
// lost (loss_of). Only time in which this process itself runs counts, so a process that was stopped blames no other.
class Monitor {
 public:
  static constexpr std::chrono::milliseconds kInterval{50};

  // `control` outlives it. Of the options, deadline and first_rank.
  Monitor(ShmControl& control, int rank, int world_size, const FabricOptions& options);

  // Any thread.
  RankStatus status(int rank) const;

 private:
  void watch(const std::stop_token& stop);
  void look_at(int rank, std::chrono::nanoseconds elapsed);

  struct Seen {
    std::uint64_t beats = 0;
    std::atomic<std::int64_t> silence{0};  // nanoseconds
  };

  ShmControl& control_;
  int rank_;
  int world_size_;
  int first_rank_;
  LivenessLimits limits_;
  std::array<Seen, kMaxPeers> seen_;
  std::mutex mutex_;
  std::condition_variable_any wake_;  // ends the thread's sleep
  std::jthread thread_;               // last: it uses all of the above
};

}  // namespace heddle
