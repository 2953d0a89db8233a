// The persistent threads that carry out the loops of CPU operators.
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

// Results never depend on how many threads there are or which one took which piece: an operator gives each output
// element to one piece and computes it in a fixed order.
//
// A piece must not wait for another piece or on a flag: pieces run in any order, perhaps all on one thread. Work that
// waits on a peer belongs to a Team (base/team.h).
class ThreadPool {
 public:
  // Pieces are multiples of `least`, or `most`, but for the last. Where it is less than `most`, each takes half of a
  // thread's share of what is left, within these two: the first cost little to hand out, and with the last threads end
  // together.
  struct PieceSizes {
    std::int64_t most;
    std::int64_t least;

    PieceSizes(std::int64_t all) : most(all), least(all) {}  // NOLINT(google-explicit-constructor): `count, grain`
    PieceSizes(std::int64_t most_of_all, std::int64_t least_of_all) : most(most_of_all), least(least_of_all) {}
  };

  // `num_threads` >= 1, the calling thread of parallel_for counted in; 1 starts none. Throws Failure when the system
  // gives no more threads.
  explicit ThreadPool(int num_threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls piece(begin, end) until [0, count) is covered once, with pieces of these sizes, and returns when all are
  // done; the caller takes part. May be called from several threads at once, not from within a piece. Allocates
  // nothing. If pieces throw, those already begun finish, no others start, and the first exception is rethrown.
  // What pieces wrote is visible to the caller afterwards.
  void parallel_for(std::int64_t count, PieceSizes sizes, FunctionRef<void(std::int64_t, std::int64_t)> piece);

 private:
  // One call of parallel_for; lives on its caller's stack, and in the list while it has pieces left to give out.
  struct Loop {
    FunctionRef<void(std::int64_t, std::int64_t)> piece;
    std::int64_t count;
    PieceSizes sizes;
    std::atomic<std::int64_t> next{0};
    std::atomic<int> num_workers{0};  // inside; grows under mutex_ while the loop is in the list
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
  Loop* loops_ = nullptr;               // those with pieces left; guarded by mutex_
  std::atomic<bool> has_loops_{false};  // what a worker spins on before it sleeps
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace heddle
