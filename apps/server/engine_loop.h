// The thread that owns the engine: it takes requests, loops over Engine::step, and hands tokens on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "server/histogram.h"

namespace heddle::server {

using Clock = std::chrono::steady_clock;
using Ticket = std::uint64_t;  // of one answer; the caller's, unique

struct LoopRequest {
  Ticket ticket = 0;
  Request request;
  std::optional<Ticket> same_prompt_as;  // an earlier ticket of the same call of submit
};

// What the loop has to say about one ticket: a token, or its failure, after which nothing follows.
struct LoopOutput {
  Ticket ticket = 0;
  TokenOutput output;
  std::string failure;       // not empty: there is no token, and this is the reason
  bool bad_request = false;  // of a failure: the request is at fault
};

// Of one step: outputs, and when they were there.
struct LoopOutputs {
  std::vector<LoopOutput> list;
  Clock::time_point time;
};

enum class LoopState : std::uint8_t { loading, running, failed, stopped };

struct RunningRequest {
  Ticket ticket = 0;
  RequestProgress progress;
};

// The engine's state and sums since the start; taken between two steps.
struct LoopSnapshot {
  LoopState state = LoopState::loading;
  std::string failure;  // in the state failed
  EngineStatus engine;
  std::vector<RunningRequest> requests;  // running ones, then some of those that wait
  std::int64_t num_steps = 0;
  std::int64_t num_prompt_tokens = 0;  // computed
  std::int64_t num_sampled = 0;
  double bytes_read = 0;
  double step_seconds = 0;  // of all steps
  Histogram step_tokens{kStepTokenBounds};
};

class EngineLoop {
 public:
  struct Callbacks {
    // Called on the loop's thread; must not block for long. If it throws, outputs are lost, and the state is failed.
    std::function<void(LoopOutputs)> deliver;
    std::function<void()> state_changed;  // on any thread; must not throw or block for long
  };

  // `make_engine` runs on the loop's thread; what it throws leads to the state failed.
  EngineLoop(std::function<std::unique_ptr<Engine>()> make_engine, Callbacks callbacks);
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;
  ~EngineLoop();  // as stop()

  // Queues requests, for the next step. In the states failed and stopped each fails at once. Thread-safe, like all below.
  void submit(std::vector<LoopRequest> requests);

  // Forgets tickets and frees their pages before the next step. One more step's outputs may still arrive.
  void cancel(std::vector<Ticket> tickets);

  // Ends after the step that runs, and joins.
  void stop();

  // Asks for the end. False: the step that runs, or loading, has not returned within `limit`, and stop() would wait for it.
  bool stop_within(std::chrono::milliseconds limit);

  // How long the step that runs has been running; 0 between steps.
  std::chrono::nanoseconds step_time() const;

  // The state is failed from now on, for `reason`, even while a step does not return.
  void give_up(const std::string& reason);

  LoopState state() const;
  LoopSnapshot snapshot() const;
  std::exception_ptr loading_error() const;  // what make_engine has thrown
  // Once the state has been running; call what is thread-safe alone.
  const Engine& engine() const { return *engine_; }

 private:
  struct Inbox {
    std::vector<LoopRequest> requests;
    std::vector<Ticket> cancelled;
    bool stop = false;
  };

  void run();
  bool wait_for_work(Inbox& inbox);  // false: stop
  void turn(Inbox& inbox);
  void break_down(const std::string& reason);
  void take(Inbox& inbox);
  void submit_one(LoopRequest& request);
  void step();
  void fail_all(const std::string& reason);
  void set_state(LoopState state, const std::string& failure = {});
  void publish(bool now);
  void flush();
  bool see_give_up();

  std::function<std::unique_ptr<Engine>()> make_engine_;
  Callbacks callbacks_;

  // Of the loop's thread alone.
  std::unique_ptr<Engine> engine_;
  std::unordered_map<Ticket, std::int64_t> ids_;      // the engine's
  std::unordered_map<std::int64_t, Ticket> tickets_;  // by the engine's ids
  std::vector<LoopOutput> outputs_;
  LoopSnapshot current_;
  Clock::time_point published_;
  int failures_in_a_row_ = 0;

  std::atomic<Clock::rep> step_start_ = 0;  // since the clock's epoch; 0: no step runs
  std::atomic<bool> given_up_ = false;
  mutable std::mutex mutex_;
  std::condition_variable wakeup_, end_;
  bool ended_ = false;  // run() has returned, or is about to
  Inbox inbox_;
  std::string give_up_reason_;
  LoopSnapshot snapshot_;
  std::exception_ptr loading_error_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace heddle::server
