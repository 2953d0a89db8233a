// Watches which ranks are alive and what they wait for, and ends this process when an MPI call does not return.
//
// Every rank sends heartbeats by UDP, twenty per deadline, with the rank that it waits for. So a rank that waits for a
// live one, which itself waits for a dead one, can name the dead one. The first rank that is sure of an error sends its
// text to all others, and every rank then fails with the same text. None of this uses MPI: an MPI call that waits for a
// dead rank never returns, and meanwhile no other thread may call MPI.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/tag.h"
#include "fabric/liveness.h"
#include "fabric/mpi/beat_socket.h"
#include "fabric/mpi/presence.h"
#include "fabric/process_state.h"

namespace heddle {

// The address and process of a rank. Plain data: it is sent between ranks.
struct RankContact {
  BeatAddress address;
  ProcessIdentity process;
};

struct WatchOptions {
  std::uint64_t job = 0;  // the same on all ranks of the run, and of no other
  int rank = 0;
  int world_size = 1;
  bool one_machine = true;
  std::chrono::nanoseconds deadline{};
  std::chrono::nanoseconds join_deadline{};  // of each wait and MPI call until say_joined()
};

// Any thread may call any of it.
class RankWatch {
 public:
  explicit RankWatch(const WatchOptions& options);
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;
  ~RankWatch();

  RankContact own_contact() const;
  // Starts sending to the others, by rank, and watching them.
  void begin(std::vector<RankContact> contacts);
  // From now on ranks may end: all have said that they are done.
  void end();

  std::chrono::nanoseconds deadline() const { return options_.deadline; }
  // Of a wait or MPI call that begins now.
  std::chrono::nanoseconds limit() const { return joined_ ? options_.deadline : options_.join_deadline; }
  void say_joined() { joined_ = true; }
  // Nanoseconds, in steps of a twentieth of the deadline. It stands still while this process is stopped, so that one
  // that was blames nobody.
  std::uint64_t now() const { return now_.load(std::memory_order_relaxed); }

  // What this rank tells the others.
  void say_waiting(int from, Tag tag);
  void say_not_waiting();
  void say_closed();  // at once, and from now on

  // Why `from` does not come (who_is_late), or who has not started.
  std::string what_is_known_of(int from) const;

  // The first error, of this rank or reported by another, is final.
  bool in_trouble() const { return in_trouble_.load(std::memory_order_acquire); }
  void declare(Beat::Kind kind, const std::string& text);  // failure or timeout; returns when the others were told
  [[noreturn]] void throw_trouble() const;                 // Failure or Timeout

  // While it lives, this thread is inside an MPI call that has to do with `peer` (-1: with all). After the deadline the
  // process ends with status 1 and a line on standard error. One at a time.
  class Call {
   public:
    Call(RankWatch& watch, const char* what, int peer);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();

   private:
    RankWatch& watch_;
  };

 private:
  // What is known of another rank.
  struct Seen {
    std::uint64_t heard_at = 0;  // by now()
    int waiting_for = -1;
    Tag tag;
    bool closed = false;
  };

  void run();
  void receive();
  void look_at_ranks();
  void look_at_call();
  void tell() const;
  Beat own_beat() const;
  // `text` with the machines that are silent; mutex_ is held.
  std::string with_machines(std::string text, const std::vector<RankStatus>& ranks) const;
  // What is known of each rank; mutex_ is held.
  std::vector<RankStatus> statuses() const;
  LivenessLimits limits() const { return {interval_, options_.deadline}; }

  WatchOptions options_;
  std::chrono::milliseconds interval_;
  Presence presence_;
  BeatSocket socket_;
  ProcessIdentity process_ = own_process();

  std::atomic<std::uint64_t> now_ = 0;
  std::atomic<bool> in_trouble_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> joined_ = false;
  std::atomic<const char*> call_ = nullptr;  // in an MPI call; with the two below
  std::atomic<int> call_peer_ = -1;
  std::atomic<std::uint64_t> call_since_ = 0;

  mutable std::mutex mutex_;  // all below
  std::vector<RankContact> contacts_;
  std::vector<MachineRanks> machines_;  // where there are several
  std::vector<Seen> seen_;
  bool ended_ = false;
  int waiting_for_ = -1;
  Tag waiting_tag_;
  bool closed_ = false;
  Beat::Kind trouble_kind_ = Beat::alive;
  std::string trouble_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace heddle
