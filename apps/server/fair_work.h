// Fair queueing of work for the workers between owners, so that one owner's slow requests do not delay another's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

namespace heddle::server {

// Among owners that have work, the one whose work has taken the least time goes next; an owner that was idle starts at the
// least time of the active ones (fair queueing by service time). Work of one owner is FIFO. Thread-safe.
class FairWork {
 public:
  enum class Kind : std::uint8_t {
    quick,  // parsing, encoding
    slow    // a form to compile: at most all workers but one do such work at a time
  };

  // `worker` runs an action on one of `num_workers` threads. What it still runs must not outlive this.
  FairWork(std::function<void(std::function<void()>)> worker, int num_workers);

  void add(std::uint64_t owner, Kind kind, std::function<void()> work);  // `work` must not throw

 private:
  struct Owner {
    std::deque<std::function<void()>> quick, slow;
    double seconds = 0;  // that its work has taken
    int num_running = 0;
    bool active() const { return num_running > 0 || !quick.empty() || !slow.empty(); }
  };
  struct Item {
    std::uint64_t owner = 0;
    Kind kind = Kind::quick;
    std::function<void()> work;
  };

  std::optional<Item> next();
  void run_one();
  void done(const Item& item, double seconds);

  std::function<void(std::function<void()>)> worker_;
  int most_slow_;
  std::mutex mutex_;
  std::map<std::uint64_t, Owner> owners_;
  int num_slow_ = 0;  // running
};

}  // namespace heddle::server
