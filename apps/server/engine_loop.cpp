#include "server/engine_loop.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace heddle::server {
namespace {

constexpr int kMostFailures = 3;  // steps in a row, until the engine counts as lost
constexpr std::chrono::milliseconds kPublishPeriod{100};
constexpr std::size_t kMostShownRequests = 512;

}  // namespace

EngineLoop::EngineLoop(std::function<std::unique_ptr<Engine>()> make_engine, Callbacks callbacks)
    : make_engine_(std::move(make_engine)), callbacks_(std::move(callbacks)), thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() {
  stop();
}

bool EngineLoop::stop_within(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  inbox_.stop = true;
  wakeup_.notify_one();
  return end_.wait_for(lock, limit, [this] { return ended_; });
}

void EngineLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    inbox_.stop = true;
  }
  wakeup_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EngineLoop::submit(std::vector<LoopRequest> requests) {
  {
    const std::lock_guard lock(mutex_);
    for (LoopRequest& request : requests) inbox_.requests.push_back(std::move(request));
  }
  wakeup_.notify_one();
}

void EngineLoop::cancel(std::vector<Ticket> tickets) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.cancelled.insert(inbox_.cancelled.end(), tickets.begin(), tickets.end());
  }
  wakeup_.notify_one();
}

std::chrono::nanoseconds EngineLoop::step_time() const {
  const Clock::rep start = step_start_;
  return start == 0 ? Clock::duration(0)
                    : std::max(Clock::now().time_since_epoch() - Clock::duration(start), Clock::duration(1));
}

void EngineLoop::give_up(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    snapshot_.state = LoopState::failed;
    give_up_reason_ = reason;
    snapshot_.failure = reason;
  }
  callbacks_.state_changed();
}

// After give_up, on the loop's thread: true.
bool EngineLoop::see_give_up() {
  if (!given_up_) return false;
  current_.state = LoopState::failed;
  const std::lock_guard lock(mutex_);
  current_.failure = give_up_reason_;
  return true;
}

LoopState EngineLoop::state() const {
  const std::lock_guard lock(mutex_);
  return snapshot_.state;
}

LoopSnapshot EngineLoop::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

std::exception_ptr EngineLoop::loading_error() const {
  const std::lock_guard lock(mutex_);
  return loading_error_;
}

void EngineLoop::run() {
  try {
    engine_ = make_engine_();
    set_state(LoopState::running);
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      loading_error_ = std::current_exception();
    }
    set_state(LoopState::failed, error.what());
  }
  Inbox inbox;
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = wait_for_work(inbox);
      if (goes_on) turn(inbox);
    } catch (const std::exception& error) {  // beside a step, which has guards of its own: memory is short, say
      break_down(error.what());
    }
  }
  try {
    fail_all("the server stops");
    set_state(LoopState::stopped);
  } catch (const std::exception& error) {
    log_warning("the engine's thread, at its end: {}", error.what());
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  end_.notify_all();
}

void EngineLoop::turn(Inbox& inbox) {
  take(inbox);
  if (engine_ && current_.state == LoopState::running) step();
  publish(false);
}

// What the loop knows of its tickets, and the engine of its sequences, cannot be relied on, so neither is asked again.
void EngineLoop::break_down(const std::string& reason) {
  ids_.clear();
  tickets_.clear();
  outputs_.clear();
  current_.state = LoopState::failed;
  try {
    if (!given_up_) give_up(reason);
    see_give_up();
  } catch (const std::exception& error) {  // memory is short still
    log_warning("the engine's thread fails, and cannot say so: {}", error.what());
  }
}

bool EngineLoop::wait_for_work(Inbox& inbox) {
  const bool busy = engine_ && current_.state == LoopState::running && !engine_->idle();
  if (!busy) publish(true);
  std::unique_lock lock(mutex_);
  if (!busy) wakeup_.wait(lock, [&] { return inbox_.stop || !inbox_.requests.empty() || !inbox_.cancelled.empty(); });
  inbox = std::exchange(inbox_, Inbox{.stop = inbox_.stop});
  return !inbox.stop;
}

void EngineLoop::take(Inbox& inbox) {
  for (LoopRequest& request : inbox.requests) submit_one(request);
  // After the requests: a ticket may be cancelled before the loop has seen it.
  for (const Ticket ticket : inbox.cancelled) {
    const auto found = ids_.find(ticket);
    if (found == ids_.end()) continue;
    engine_->cancel(found->second);
    tickets_.erase(found->second);
    ids_.erase(found);
  }
  flush();
}

void EngineLoop::submit_one(LoopRequest& request) {
  if (current_.state != LoopState::running) {
    outputs_.push_back({.ticket = request.ticket, .failure = "the engine has failed: " + current_.failure});
    return;
  }
  try {
    if (request.same_prompt_as)
      if (const auto leader = ids_.find(*request.same_prompt_as); leader != ids_.end())
        request.request.same_prompt_as = leader->second;
    const std::int64_t id = engine_->submit(std::move(request.request));
    ids_.emplace(request.ticket, id);
    tickets_.emplace(id, request.ticket);
  } catch (const InputError& error) {
    outputs_.push_back({.ticket = request.ticket, .failure = error.what(), .bad_request = true});
  } catch (const std::exception& error) {
    outputs_.push_back({.ticket = request.ticket, .failure = error.what()});
  }
}

void EngineLoop::step() {
  if (engine_->idle()) return;
  const auto start = Clock::now();
  step_start_ = start.time_since_epoch().count();
  try {
    const std::span<const TokenOutput> outputs = engine_->step();
    step_start_ = 0;
    if (see_give_up()) return fail_all(current_.failure);
    for (const TokenOutput& output : outputs) {
      const auto found = tickets_.find(output.request);
      if (found == tickets_.end()) continue;
      LoopOutput entry{.ticket = found->second, .output = output};
      if (output.finish == FinishReason::error) entry.failure = output.error;
      if (output.finish) {
        ids_.erase(found->second);
        tickets_.erase(found);
      }
      outputs_.push_back(std::move(entry));
    }
    failures_in_a_row_ = 0;
    const StepStatistics& statistics = engine_->last_step();
    ++current_.num_steps;
    current_.num_prompt_tokens += statistics.num_prompt_tokens;
    current_.num_sampled += statistics.num_sampled;
    current_.step_tokens.add(statistics.num_prompt_tokens + statistics.num_decoded);
    current_.bytes_read += static_cast<double>(statistics.bytes_read);
    current_.step_seconds += std::chrono::duration<double>(Clock::now() - start).count();
  } catch (const std::exception& error) {
    step_start_ = 0;
    fail_all(error.what());
    if (see_give_up()) return;
    const bool lost =
        dynamic_cast<const LostDevice*>(&error) != nullptr || dynamic_cast<const Timeout*>(&error) != nullptr;
    if (lost || ++failures_in_a_row_ == kMostFailures) set_state(LoopState::failed, error.what());
  }
  flush();
}

void EngineLoop::fail_all(const std::string& reason) {
  for (const auto& [ticket, id] : ids_) {
    outputs_.push_back({.ticket = ticket, .failure = reason});
    if (engine_) engine_->cancel(id);
  }
  ids_.clear();
  tickets_.clear();
  flush();
}

void EngineLoop::flush() {
  if (outputs_.empty()) return;
  callbacks_.deliver({std::exchange(outputs_, {}), Clock::now()});
}

void EngineLoop::set_state(LoopState state, const std::string& failure) {
  current_.state = state;
  current_.failure = failure;
  publish(true);
  callbacks_.state_changed();
}

void EngineLoop::publish(bool now) {
  const auto time = Clock::now();
  if (!now && time - published_ < kPublishPeriod) return;
  published_ = time;
  current_.requests.clear();
  if (engine_ && !given_up_) {
    current_.engine = engine_->status();
    for (const RequestProgress& progress : engine_->progress(kMostShownRequests))
      if (const auto found = tickets_.find(progress.id); found != tickets_.end())
        current_.requests.push_back({found->second, progress});
  }
  const std::lock_guard lock(mutex_);
  if (given_up_ && current_.state == LoopState::running) {
    current_.state = LoopState::failed;
    current_.failure = give_up_reason_;
  }
  snapshot_ = current_;
}

}  // namespace heddle::server
