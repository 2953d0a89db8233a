#include "engine/rank_group.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "collectives/communicator.h"
#include "engine/control_line.h"
#include "engine/rank_error.h"
#include "engine/while_alone.h"
#include "fabric/fabric.h"
#include "parallel/tensor_split.h"
#include "step/step_bytes.h"

namespace heddle {
namespace {

std::unique_ptr<Executor> executor_of(RankPart& part, int rank, ExecutorLimits limits, int threads) {
  if (part.world == nullptr) return std::make_unique<Executor>(std::move(part.model), limits, threads);
  limits.num_sms = sms_of_step(part, rank, limits.num_sms);
  auto executor = std::make_unique<Executor>(std::move(part.model), limits, threads);
  const WaitLimit& waits = part.world->communicator(rank).peers().waits;
  if (waits.record != nullptr) executor->watch(waits);  // null between machines, where tasks throw
  if (executor->device().kind == DeviceKind::cuda) {
    bool& alone = part.world->alone(rank);
    {
      const WhileAlone by_itself(alone);
      executor->warm_up();
    }
    executor->share_gpu([&fabric = part.world->fabric(rank)] { fabric.meet(); }, alone);
  }
  return executor;
}

std::vector<RankGroup::Reads> reads_of_ranks(const RankModels& ranks, int page_size) {
  std::vector<RankGroup::Reads> reads;
  reads.reserve(ranks.size());
  for (const RankPart& part : ranks) {
    const ModelShape& shape = part.model->shape();
    reads.push_back(
        {.weight_bytes_per_step = shape.weight_bytes_per_step,
         .experts = shape.experts,
         .cache_bytes_per_token = shape.kv_pages(page_size, 1).size_bytes() / static_cast<std::size_t>(page_size)});
  }
  return reads;
}

}  // namespace

RankGroup::RankGroup(RankModels ranks, const ExecutorLimits& limits, int threads, ChoiceTables tables)
    : tables_(std::move(tables)),
      ranks_(std::move(ranks)),
      decode_(tables_.decode, ranks_, limits),
      reads_(reads_of_ranks(ranks_, limits.page_size)),
      channel_(size()) {
  const auto threads_of = [&](int rank) {
    return std::max(1, static_cast<int>(even_slice(threads, rank, size()).count));
  };
  if (size() == 1) {
    executor_ = executor_of(ranks_[0], 0, limits, threads);
    return;
  }
  if (of_processes()) {
    guarded([&] {
      world().line().send(std::as_bytes(std::span(&limits, 1)));
      executor_ = executor_of(ranks_[0], 0, limits, threads);
    });
    return;
  }
  try {
    for (int rank = 1; rank < size(); ++rank)
      threads_.emplace_back([this, rank, limits, count = threads_of(rank)] { serve(rank, limits, count); });
    guarded([&] {
      executor_ = executor_of(ranks_[0], 0, limits, threads_of(0));
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

std::size_t RankGroup::weight_bytes_of_step(std::int64_t num_tokens) const {
  return std::accumulate(
      reads_.begin(), reads_.end(), std::size_t{0},
      [num_tokens](std::size_t sum, const Reads& reads) { return sum + reads.weight_bytes_of_step(num_tokens); });
}

std::size_t RankGroup::cache_bytes_per_token() const {
  return std::accumulate(reads_.begin(), reads_.end(), std::size_t{0},
                         [](std::size_t sum, const Reads& reads) { return sum + reads.cache_bytes_per_token; });
}

void RankGroup::stop() {
  executor_.reset();  // its last step ends together with those of the others
  if (of_processes()) {
    try {
      world().line().send({});
    } catch (const std::exception&) {  // of a run that has failed, which is told elsewhere
    }
    return;
  }
  channel_.close();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// A rank's thread. The executor outlives the telling of its fault: on a GPU its memory is freed when nothing runs there
// any more, and another rank's kernel may run, waiting for this rank, until it is told.
void RankGroup::serve(int rank, const ExecutorLimits& limits, int threads) {
  std::unique_ptr<Executor> executor;
  try {
    executor = executor_of(ranks_[static_cast<std::size_t>(rank)], rank, limits, threads);
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
  ranks_[static_cast<std::size_t>(rank)].world->abandon(rank);
}

// Rank 0's part of several ranks' work.
void RankGroup::guarded(FunctionRef<void()> action) {
  try {
    action();
  } catch (...) {
    if (of_processes()) end_among_processes(world());
    fail(0);
    channel_.check();  // which throws: the error that came first
    throw;
  }
}

void RankGroup::choose(StepPlan& plan) const {
  executor_->choose_parts(plan);
  // The larger part's sums.
  const auto num_tokens = static_cast<int>(plan.tokens.size());
  if (size() > 1)
    plan.choices = choices_for(tables_, std::max(plan.prefix_tokens, num_tokens - plan.prefix_tokens),
                               executor_->model().shape().delta_bytes_per_token);
  plan.choices.decode = decode_.choose(plan);
  if (plan.choices.decode.fused()) plan.choices.sums = SumForm::separate;
}

void RankGroup::start(const StepPlan& plan, Outcome outcome, Histories histories) {
  if (size() == 1) return executor_->start(plan, outcome, histories);
  require(outcome != Outcome::tokens && executor_->num_in_flight() == 0,
          "{} ranks: steps give logits to rank 0, one at a time", size());
  if (!of_processes()) channel_.check();
  guarded([&] {
    send(plan);
    executor_->start(plan, outcome);
  });
}

void RankGroup::send(const StepPlan& plan) {
  if (!of_processes()) return channel_.send(plan);
  pack(plan, packed_);
  world().line().send(packed_);
}

StepResult RankGroup::finish() {
  if (size() == 1) return executor_->finish();
  StepResult result;
  guarded([&] {
    result = executor_->finish();
    if (of_processes()) world().line().check();
  });
  return result;
}

void RankGroup::check() {
  if (size() > 1) of_processes() ? world().line().check() : channel_.check();
}

Tensor RankGroup::run(const StepPlan& plan) {
  start(plan, Outcome::logits);
  return finish().logits;
}

void follow(RankModels ranks, int threads) {
  const std::shared_ptr<RankWorld> world = ranks.front().world;
  require(world != nullptr && world->of_processes() && world->own_rank() != 0, "only another rank's process follows");
  const int rank = world->own_rank();
  ControlLine& line = world->line();
  std::unique_ptr<Executor> executor;  // outlives the telling of its fault, as in RankGroup::serve
  try {
    ExecutorLimits limits;
    const std::span<const std::byte> first = line.receive();
    if (first.empty()) return;  // rank 0 has ended before it had an executor
    require(first.size() == sizeof limits, "limits of {} bytes", first.size());
    std::memcpy(&limits, first.data(), sizeof limits);
    executor = executor_of(ranks[static_cast<std::size_t>(rank)], rank, limits, threads);
    StepPlan plan;
    plan.reserve(limits.step);
    for (auto bytes = line.receive(); !bytes.empty(); bytes = line.receive()) {
      unpack(bytes, plan);
      executor->start(plan, Outcome::none);
      executor->finish();
      line.check();
    }
  } catch (...) {
    end_among_processes(*world);
  }
}

}  // namespace heddle
