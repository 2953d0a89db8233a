#include "cli/bench/steps.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/copy.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "cli/bench/device.h"
#include "engine/step_memory.h"
#include "kernels/sampling/random.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrefillTokens = 512;  // per step while contexts are computed
constexpr int kNumProbes = 256;
constexpr int kContextSequence = -1;  // the sequence number of the tokens that all contexts share
constexpr std::uint64_t kSeed = 4;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

int pages_for(const StepCase& shape, int page_size) {
  return ceil_div(shape.length(), page_size);
}

ExecutorLimits limits_for(const std::vector<StepCase>& cases, int page_size, const SplitOptions& split,
                          bool fused_decode) {
  ExecutorLimits limits{.step = {.max_tokens = 1, .max_sequences = 1, .max_samples = 1, .fused_decode = fused_decode},
                        .page_size = page_size,
                        .split = split};
  if (split.kind != SplitKind::none) limits.step.max_parts = kMostParts;
  for (const StepCase& one : cases) {
    const int pages = pages_for(one, page_size);
    StepLimits& step = limits.step;
    step.max_tokens = std::max({step.max_tokens, one.batch * one.step_tokens, std::min(one.context, kPrefillTokens)});
    step.max_sequences = step.max_samples = std::max(step.max_sequences, one.batch);
    step.max_pages_per_sequence = std::max(step.max_pages_per_sequence, pages);
    limits.num_pages = std::max(limits.num_pages, one.batch * pages);
  }
  return limits;
}

// Sums the time of spans by name. Called from the stream's worker, read after the stream was waited for.
class SpanTimes : public SpanSink {
 public:
  void begin(std::string_view, int, Clock::time_point time) override { begins_.push_back(time); }
  void end(std::string_view name, int, Clock::time_point time) override {
    const double seconds = seconds_between(begins_.back(), time);
    begins_.pop_back();
    if (name == "step") step_ += seconds;
    if (name == "attend") attention_ += seconds;
    if (name == "linear") linear_ += seconds;
  }

  TimeShares shares() const {
    if (step_ <= 0) return {};
    return {
        .attention = attention_ / step_, .linear = linear_ / step_, .other = (step_ - attention_ - linear_) / step_};
  }

 private:
  std::vector<Clock::time_point> begins_;
  double step_ = 0;
  double attention_ = 0;
  double linear_ = 0;
};

}  // namespace

std::int32_t random_token(int sequence, int position, std::int64_t vocab_size) {
  const double u = uniform(kSeed, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(sequence + 1));
  return static_cast<std::int32_t>(u * static_cast<double>(vocab_size));
}

nlohmann::json tokens_json(const StepCase& shape, std::int64_t vocab_size) {
  std::vector<std::int32_t> context;
  context.reserve(static_cast<std::size_t>(shape.context));
  for (int i = 0; i < shape.context; ++i) context.push_back(random_token(kContextSequence, i, vocab_size));
  std::vector<std::vector<std::int32_t>> inputs(static_cast<std::size_t>(shape.batch));
  for (int sequence = 0; sequence < shape.batch; ++sequence)
    for (int i = 0; i < shape.num_tokens; ++i)
      inputs[static_cast<std::size_t>(sequence)].push_back(random_token(sequence, shape.context + i, vocab_size));
  return {{"batch", shape.batch}, {"context", shape.context}, {"context_tokens", context}, {"input_tokens", inputs}};
}

std::size_t bytes_of_steps(const RankModels& ranks, const std::vector<StepCase>& cases, bool fused_decode) {
  const Model& first = *ranks.front().model;
  const int page_size = default_page_size(first.device()) * first.shape().shard.ranks;
  const ExecutorLimits limits = limits_for(cases, page_size, {}, fused_decode);
  std::size_t most = 0;
  for (const RankPart& part : ranks)
    most = std::max(most, step_bytes(*part.model, limits) + cache_shape(*part.model, limits).size_bytes());
  return most;
}

StepRunner::StepRunner(RankModels ranks, const std::vector<StepCase>& cases, int threads, int page_size,
                       const SplitOptions& split, const ChoiceTables& tables)
    : threads_(threads),
      page_size_((page_size > 0 ? page_size : default_page_size(ranks.front().model->device())) *
                 ranks.front().model->shape().shard.ranks),
      shape_(ranks.front().model->shape()),
      ranks_(std::move(ranks), limits_for(cases, page_size_, split, has_fused(tables.decode)), threads, tables) {
  shape_.weight_bytes_per_step = ranks_.weight_bytes_of_step(1);
}

void StepRunner::add_sequence(StepPlan& plan, int sequence, int first_position, int num_tokens) const {
  const int index = static_cast<int>(plan.sequences.size());
  plan.sequences.push_back({.request = sequence,
                            .first_token = static_cast<std::int32_t>(plan.tokens.size()),
                            .num_tokens = num_tokens,
                            .context_len = first_position + num_tokens,
                            .first_page = static_cast<std::int32_t>(plan.pages.size()),
                            .num_pages = pages_per_sequence_});
  for (int page = 0; page < pages_per_sequence_; ++page) plan.pages.push_back(sequence * pages_per_sequence_ + page);
  for (int position = first_position; position < first_position + num_tokens; ++position) {
    const int owner = position < case_.context ? kContextSequence : sequence;
    plan.tokens.push_back(random_token(owner, position, shape().vocab_size));
    plan.positions.push_back(position);
  }
  const auto last_row = static_cast<std::int32_t>(plan.tokens.size()) - 1;
  plan.samples.push_back({.sequence = index, .row = last_row, .position = first_position + num_tokens});
}

StepPlan StepRunner::plan_of(int num_sequences, int first_position, int num_tokens) const {
  StepPlan plan;
  for (int sequence = 0; sequence < num_sequences; ++sequence) add_sequence(plan, sequence, first_position, num_tokens);
  return plan;
}

void StepRunner::prepare(const StepCase& shape, ContextFill fill) {
  case_ = shape;
  pages_per_sequence_ = pages_for(shape, page_size_);
  plans_.clear();
  for (int position = shape.context; position < shape.length(); position += shape.step_tokens)
    plans_.push_back(plan_of(shape.batch, position, std::min(shape.step_tokens, shape.length() - position)));
  for (StepPlan& plan : plans_) ranks_.choose(plan);
  fill == ContextFill::computed ? compute_context() : make_up_context();
}

void StepRunner::compute_context() {
  for (int position = 0; position < case_.context; position += kPrefillTokens)
    ranks_.run(plan_of(1, position, std::min(kPrefillTokens, case_.context - position)));
  if (case_.context == 0 || case_.batch == 1) return;
  StepPlan copies = plan_of(1, case_.context, 1);
  for (int sequence = 1; sequence < case_.batch; ++sequence)
    for (int page = 0; page < pages_per_sequence_; ++page)
      copies.page_copies.push_back({.from = page, .to = sequence * pages_per_sequence_ + page});
  ranks_.run(copies);
}

// Generates the pages of the first sequence on the host and copies them to all layers and sequences. Values beyond the
// context are never read before the steps have written them.
void StepRunner::make_up_context() {
  if (case_.context == 0) return;
  const KvPages& kv = ranks_.first().kv_pages();
  const int pages = static_cast<int>(ceil_div(case_.context, kv.page_size));
  const SyntheticTensor recipe{.key = kContextKey, .scale = static_cast<float>(1 / kUnitDeviation)};
  ThreadPool pool(threads_);
  Stream& stream = ranks_.first().stream();
  for (int plane = 0; plane < kv.layout.num_planes; ++plane) {
    const KvPlane& shape = kv.layout.plane(plane);
    const std::int64_t row_elements = std::int64_t{kv.page_size} * shape.width;  // of a head of a page
    const std::size_t row_bytes = static_cast<std::size_t>(row_elements) * size_of(shape.dtype);
    const std::size_t bytes = static_cast<std::size_t>(pages) * kv.bytes_per_page(plane);
    std::vector<std::byte> made(bytes);
    pool.parallel_for(std::int64_t{pages} * shape.num_heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t page = i / shape.num_heads, head = i % shape.num_heads;
        const std::int64_t first =
            ((plane * shape.num_heads + head) * kContextPositions + page * kv.page_size) * std::int64_t{shape.width};
        fill_synthetic(recipe, static_cast<std::uint64_t>(first), static_cast<std::size_t>(row_elements), shape.dtype,
                       made.data() + static_cast<std::size_t>(i) * row_bytes);
      }
    });
    enqueue_copy(stream, kv.at(plane, 0), made.data(), bytes);
    for (int layer = 0; layer < kv.num_layers; ++layer)
      for (int sequence = 0; sequence < case_.batch; ++sequence)
        if (layer + sequence > 0)
          enqueue_copy(
              stream,
              kv.at(plane, layer) + static_cast<std::size_t>(sequence * pages_per_sequence_) * kv.bytes_per_page(plane),
              kv.at(plane, 0), bytes);
    stream.synchronize();  // before `made` ends
  }
}

void StepRunner::split(const SplitOptions& options) {
  for (StepPlan& plan : plans_)
    plan.prefix_tokens = heddle::prefix_tokens(options, ranks_.first().tiles(), static_cast<int>(plan.tokens.size()));
}

void StepRunner::sum_as(SumForm form) {
  for (StepPlan& plan : plans_) plan.choices.sums = form;
}

void StepRunner::choose_decode(const DecodeChoice& choice) {
  for (StepPlan& plan : plans_) {
    plan.choices.decode = choice;
    plan.choices.sums = choice.fused() ? SumForm::separate : SumForm::of_mode;
  }
}

std::string StepRunner::why_not_fused(const DecodeChoice& choice) const {
  const Executor& first = ranks_.first();
  return first.model().why_not_fused({.choice = choice,
                                      .num_tokens = case_.batch,
                                      .page_size = page_size_ / shape_.shard.ranks,
                                      .num_sms = first.lane().num_sms});
}

double StepRunner::sample() {
  const auto begin = Clock::now();
  for (const StepPlan& plan : plans_) {
    if (ranks_.first().num_in_flight() == ranks_.most_in_flight()) ranks_.finish();
    ranks_.start(plan, Outcome::none);
  }
  while (ranks_.first().num_in_flight() > 0) ranks_.finish();
  return seconds_between(begin, Clock::now());
}

TimeShares StepRunner::shares() {
  SpanTimes times;
  ranks_.first().stream().set_span_sink(&times);
  try {
    sample();
  } catch (...) {
    ranks_.first().stream().set_span_sink(nullptr);
    throw;
  }
  ranks_.first().stream().set_span_sink(nullptr);
  return times.shares();
}

StepLogits StepRunner::logits() {
  StepLogits result;
  for (const StepPlan& plan : plans_) {
    const Tensor logits = ranks_.run(plan);
    for (std::int64_t row = 0; row < logits.rows; ++row) {
      const std::span<const float> values = logits_row(logits, row);
      result.finite =
          result.finite && std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
      result.argmax.push_back(
          static_cast<std::int32_t>(std::max_element(values.begin(), values.end()) - values.begin()));
      if (row != 0) continue;
      result.probes.clear();
      const std::size_t stride = std::max<std::size_t>(1, values.size() / kNumProbes);
      for (std::size_t i = 0; i < values.size() && result.probes.size() < kNumProbes; i += stride)
        result.probes.push_back(values[i]);
    }
  }
  return result;
}

double StepRunner::bytes_per_step() const {
  const auto bytes_per_position = static_cast<double>(ranks_.cache_bytes_per_token());
  double bytes = 0;
  for (const StepPlan& plan : plans_) {
    bytes += static_cast<double>(ranks_.weight_bytes_of_step(std::ssize(plan.tokens)));
    for (const StepSequence& sequence : plan.sequences) bytes += bytes_per_position * sequence.context_len;
  }
  return bytes / static_cast<double>(plans_.size());
}

}  // namespace heddle
