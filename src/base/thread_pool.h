// The persistent threads that run the loops of CPU operators.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace heddle {

// Results never depend on the number of threads or on which thread took which piece: an operator assigns each output
// element to one piece and computes it in a fixed order.
//
// A piece must not wait for another piece or for a flag: pieces run in any order, perhaps all on one thread. Work that
// waits for a peer belongs in a Team (base/team.h).
class ThreadPool {
 public:
  // Pieces are multiples of `least`, and at most `most`, except the last one. With `least` < `most`, each piece is half
  // of a thread's share of the remaining work, within these limits: large pieces at first cost little to hand out,
  // small ones at the end let threads finish together.
  struct PieceSizes {
    std::int64_t most;
    std::int64_t least;

    PieceSizes(std::int64_t all) : most(all), least(all) {}  // NOLINT(google-explicit-constructor): `count, grain`
    PieceSizes(std::int64_t most_of_all, std::int64_t least_of_all) : most(most_of_all), least(least_of_all) {}
  };

  // `num_threads` >= 1 includes the thread that calls parallel_for; 1 starts no thread. Throws Failure when the system
  // cannot start a thread.
  explicit ThreadPool(int num_threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls piece(begin, end) until [0, count) is covered once, with pieces of these sizes, and returns when all are
  // done; the caller takes part. Several threads may call it at the same time, but not from within a piece. Allocates
  // nothing. If pieces throw, those already begun finish, no others start, and the first exception is rethrown. The
  // caller sees what pieces wrote.
  void parallel_for(std::int64_t count, PieceSizes sizes, FunctionRef<void(std::int64_t, std::int64_t)> piece);

 private:
  // One call of parallel_for. Lives on its caller's stack, and in the list while it has pieces left.
  struct Loop {
    FunctionRef<void(std::int64_t, std::int64_t)> piece;
    std::int64_t count;
    PieceSizes sizes;
    std::atomic<std::int64_t> next{0};
    std::atomic<int> num_workers{0};  // inside; incremented under mutex_ while the loop is in the list
    std::exception_ptr error;
    Loop* next_loop = nullptr;
  };

  void work();
  void stop();
  void run_pieces(Loop& loop);
  std::int64_t size_of_next(std::int64_t left, PieceSizes sizes) const;
  void remove(Loop& loop);

  std::mutex mutex_;
  std::condition_variable work_available_;
  std::condition_variable worker_left_;
  Loop* loops_ = nullptr;               // with pieces left; guarded by mutex_
  std::atomic<bool> has_loops_{false};  // workers spin on it before they sleep
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace heddle
