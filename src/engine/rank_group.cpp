#include "engine/rank_group.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "collectives/communicator.h"
#include "fabric/fabric.h"
#include "parallel/tensor_split.h"

namespace heddle {

RankGroup::RankGroup(RankModels ranks, const ExecutorLimits& limits, int threads)
    : ranks_(std::move(ranks)),
      weight_bytes_per_step_(heddle::weight_bytes_per_step(ranks_)),
      cache_bytes_per_token_(cache_bytes(ranks_, limits.page_size, 1) / static_cast<std::size_t>(limits.page_size)),
      channel_(size()) {
  const auto threads_of = [&](int rank) {
    return std::max(1, static_cast<int>(even_slice(threads, rank, size()).count));
  };
  if (size() == 1) {
    executor_ = make_executor(0, limits, threads);
    return;
  }
  try {
    for (int rank = 1; rank < size(); ++rank)
      threads_.emplace_back([this, rank, limits, count = threads_of(rank)] { serve(rank, limits, count); });
    guarded([&] {
      executor_ = make_executor(0, limits, threads_of(0));
      channel_.await_joined();
    });
  } catch (const std::system_error& error) {
    stop();
    throw_error<Failure>("cannot start the threads of {} ranks: {}", size(), error.what());
  } catch (...) {
    stop();
    throw;
  }
}

RankGroup::~RankGroup() {
  stop();
}

void RankGroup::stop() {
  executor_.reset();  // its last step ends together with those of the others
  channel_.close();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::unique_ptr<Executor> RankGroup::make_executor(int rank, const ExecutorLimits& limits, int threads) {
  RankPart& part = ranks_[static_cast<std::size_t>(rank)];
  auto executor = std::make_unique<Executor>(std::move(part.model), limits, threads);
  if (part.communicator != nullptr) executor->watch(part.communicator->peers().waits);
  return executor;
}

// A rank's thread.
void RankGroup::serve(int rank, const ExecutorLimits& limits, int threads) {
  try {
    const std::unique_ptr<Executor> executor = make_executor(rank, limits, threads);
    StepPlan plan;
    plan.reserve(limits.step);
    channel_.join();
    while (channel_.receive(rank, plan)) {
      executor->start(plan, Outcome::none);
      executor->finish();
    }
  } catch (...) {
    fail(rank);
  }
}

// Called while the rank's exception is handled. The cause is told before the other ranks' waits end and they fail, too.
void RankGroup::fail(int rank) {
  channel_.fail(rank, std::current_exception());
  ranks_[static_cast<std::size_t>(rank)].fabric->abandon();
}

// Rank 0's part of several ranks' work.
void RankGroup::guarded(FunctionRef<void()> action) {
  try {
    action();
  } catch (...) {
    fail(0);
    channel_.check();  // which throws: the error that came first
    throw;
  }
}

void RankGroup::start(const StepPlan& plan, Outcome outcome, Histories histories) {
  if (size() == 1) return executor_->start(plan, outcome, histories);
  require(outcome != Outcome::tokens && executor_->num_in_flight() == 0,
          "{} ranks: steps give logits to rank 0, one at a time", size());
  channel_.check();
  guarded([&] {
    channel_.send(plan);
    executor_->start(plan, outcome);
  });
}

StepResult RankGroup::finish() {
  if (size() == 1) return executor_->finish();
  StepResult result;
  guarded([&] { result = executor_->finish(); });
  return result;
}

Tensor RankGroup::run(const StepPlan& plan) {
  start(plan, Outcome::logits);
  return finish().logits;
}

}  // namespace heddle
