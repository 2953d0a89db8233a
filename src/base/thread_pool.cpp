#include "base/thread_pool.h"

#include <algorithm>
#include <system_error>

#include "base/deadline.h"
#include "base/error.h"

namespace heddle {
namespace {

// Operators of a step follow each other within microseconds; a worker that sleeps in between wakes too late.
constexpr std::chrono::microseconds kSpin{50};

// The last pieces of a loop end within the time of one piece; with few tokens that is less than sleeping and waking
// takes.
constexpr std::chrono::microseconds kSpinAtEnd{100};

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  require(num_threads >= 1 && num_threads <= 4096, "a thread pool needs 1 to 4096 threads, not {}", num_threads);
  workers_.reserve(static_cast<std::size_t>(num_threads - 1));
  try {
    for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    stop();
    throw_error<Failure>("cannot start {} threads: {}; ask for fewer", num_threads, error.what());
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_available_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::int64_t count, PieceSizes sizes,
                              FunctionRef<void(std::int64_t, std::int64_t)> piece) {
  require(sizes.least >= 1 && sizes.most >= sizes.least, "parallel_for: pieces are of {} to {}", sizes.least,
          sizes.most);
  if (count <= 0) return;
  if (count <= sizes.least || workers_.empty()) {
    for (std::int64_t begin = 0; begin < count; begin += sizes.most) piece(begin, std::min(count, begin + sizes.most));
    return;
  }
  Loop loop{.piece = piece, .count = count, .sizes = sizes};
  {
    const std::lock_guard lock(mutex_);
    loop.next_loop = loops_;
    loops_ = &loop;
    has_loops_.store(true, std::memory_order_release);
  }
  const std::int64_t pieces_for_others = (count - 1) / sizes.least;
  if (pieces_for_others == 1) work_available_.notify_one();
  if (pieces_for_others > 1) work_available_.notify_all();
  run_pieces(loop);

  {
    const std::lock_guard lock(mutex_);
    remove(loop);  // no worker joins from here on
  }
  const auto all_left = [&] { return loop.num_workers.load(std::memory_order_acquire) == 0; };
  const Deadline spin_end = Deadline::after(kSpinAtEnd);
  while (!all_left() && !spin_end.passed()) pause_cpu();
  if (!all_left()) {
    // No deadline here: the loop lives on this stack while workers are inside, and a piece must not wait for anything.
    std::unique_lock lock(mutex_);
    worker_left_.wait(lock, all_left);
  }
  if (loop.error) std::rethrow_exception(loop.error);
}

std::int64_t ThreadPool::size_of_next(std::int64_t left, PieceSizes sizes) const {
  const std::int64_t half_share = left / (2 * num_threads()) / sizes.least * sizes.least;
  return std::clamp(half_share, sizes.least, sizes.most);
}

void ThreadPool::run_pieces(Loop& loop) {
  try {
    while (true) {
      std::int64_t begin = loop.next.load(std::memory_order_relaxed), end = 0;
      do {
        if (begin >= loop.count) return;
        end = begin + std::min(loop.count - begin, size_of_next(loop.count - begin, loop.sizes));
      } while (!loop.next.compare_exchange_weak(begin, end, std::memory_order_relaxed));
      loop.piece(begin, end);
    }
  } catch (...) {
    loop.next.store(loop.count, std::memory_order_relaxed);  // no further pieces
    const std::lock_guard lock(mutex_);
    if (!loop.error) loop.error = std::current_exception();
  }
}

void ThreadPool::remove(Loop& loop) {
  for (Loop** link = &loops_; *link != nullptr; link = &(*link)->next_loop) {
    if (*link != &loop) continue;
    *link = loop.next_loop;
    break;
  }
  has_loops_.store(loops_ != nullptr, std::memory_order_release);
}

void ThreadPool::work() {
  while (true) {
    const Deadline spin_end = Deadline::after(kSpin);
    while (!has_loops_.load(std::memory_order_acquire) && !spin_end.passed()) pause_cpu();

    std::unique_lock lock(mutex_);
    work_available_.wait(lock, [&] { return loops_ != nullptr || stop_; });
    if (stop_) return;
    Loop& loop = *loops_;
    loop.num_workers.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    run_pieces(loop);
    lock.lock();
    remove(loop);  // all pieces have been handed out
    if (loop.num_workers.fetch_sub(1, std::memory_order_acq_rel) == 1) worker_left_.notify_all();  // may end the loop
  }
}

}  // namespace heddle
