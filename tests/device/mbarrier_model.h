// An mbarrier as PTX defines it (ISA 8.x, "Parallel Synchronization and Communication Instructions: mbarrier"), on
// threads of the CPU, with the memory orders of the GPU's; and TMA, as a thread that copies what it is told to.
#pragma once

#include <bit>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "device/atomics.h"
#include "device/kernel_waits.h"
#include "device/spin.h"

namespace heddle {

// Where the protocol is broken, threads give up instead of hanging.
inline KernelWaits waits_of_test(WaitRecord& record) {
  return {.limit = {.record = &record, .nanoseconds = 10'000'000'000}, .tag = "test"};
}

class MbarrierModel {
 public:
  void init(int arrivals) {
    arrivals_ = static_cast<std::uint16_t>(arrivals);
    word_ = std::bit_cast<std::uint64_t>(State{.pending = arrivals_});
  }

  void arrive() { arrive_expecting(0); }

  void arrive_expecting(std::uint32_t bytes) {
    change([&](State& state) {
      state.bytes += static_cast<std::int32_t>(bytes);
      --state.pending;
    });
  }

  // What TMA does when bytes have landed.
  void complete(std::uint32_t bytes) {
    change([&](State& state) { state.bytes -= static_cast<std::int32_t>(bytes); });
  }

  // Until the phase of this parity, the current one or the one before, has ended.
  template <class... HowLong>
  bool wait(const KernelWaits& waits, int parity) const {
    return spin_until(waits.limit, {.rank = -1, .from = 0, .tag = waits.tag}, &word_, 1,
                      [&](std::uint64_t word) { return std::bit_cast<State>(word).phase % 2 != parity; });
  }

 private:
  struct State {
    std::uint16_t phase = 0, pending = 0;  // phases that have ended; arrivals that the current one still needs
    std::int32_t bytes = 0;                // announced less landed
  };

  template <class Change>
  void change(Change apply) {
    std::uint64_t word = atomic_load<Order::relaxed>(&word_);
    for (;;) {
      State state = std::bit_cast<State>(word);
      apply(state);
      if (state.pending == 0 && state.bytes == 0) {
        ++state.phase;
        state.pending = arrivals_;
      }
      const std::uint64_t seen =
          atomic_compare_exchange<Order::release>(&word_, word, std::bit_cast<std::uint64_t>(state));
      if (seen == word) return;
      word = seen;
    }
  }

  std::uint64_t word_ = 0;
  std::uint16_t arrivals_ = 0;
};

// Carries out copies one after the other, some time after they were asked for.
class TmaModel {
 public:
  void enqueue(std::function<void()> copy) {
    const std::scoped_lock lock(mutex_);
    copies_.push_back(std::move(copy));
    changed_.notify_one();
  }

  // Carries out what is left, then ends.
  ~TmaModel() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || !copies_.empty(); });
      if (copies_.empty()) return;
      const std::function<void()> copy = std::move(copies_.front());
      copies_.pop_front();
      lock.unlock();
      copy();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> copies_;
  bool ends_ = false;
  std::jthread thread_{[this] { run(); }};
};

}  // namespace heddle
