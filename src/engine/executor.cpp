#include "engine/executor.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/checked.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/trace.h"
#include "engine/warm_up_step.h"
#include "engine/while_alone.h"
#include "kernels/sampling/argmax.h"
#include "kernels/sampling/take_tokens.h"

namespace heddle {
namespace {

bool on_gpu(Device device) {
  return device.kind == DeviceKind::cuda;
}

std::size_t host_bytes(Device device, std::size_t size_bytes) {
  return on_gpu(device) ? size_bytes : 0;
}

std::size_t logits_bytes(const Model& model, const ExecutorLimits& limits) {
  return static_cast<std::size_t>(limits.step.max_samples) * static_cast<std::size_t>(model.shape().vocab_size) *
         sizeof(float);
}

SampleRow sample_row(const StepSample& sample) {
  const SamplingParams& params = sample.params;
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .repetition_penalty = params.repetition_penalty,
          .presence_penalty = params.presence_penalty,
          .frequency_penalty = params.frequency_penalty,
          .seed = params.seed,
          .top_k = params.top_k,
          .position = sample.position};
}

Lane lane_on(Stream& stream, int num_sms) {
  return num_sms == 0 ? Lane(stream) : Lane(stream, num_sms);
}

Stream stream_on(Device device, ThreadPool& pool, StreamPriority priority = StreamPriority::normal) {
  return on_gpu(device) ? Stream(device, priority) : Stream(pool);
}

}  // namespace

Executor::Executor(std::unique_ptr<Model> model, const ExecutorLimits& limits, int threads)
    : limits_(limits),
      model_(std::move(model)),
      cache_(cache_shape(*model_, limits), device()),
      arena_(step_bytes(*model_, limits), device()),
      pool_(on_gpu(device()) ? 1 : threads),
      host_logits_(host_bytes(device(), logits_bytes(*model_, limits)), device()),
      wait_record_(sizeof(WaitRecord), device()),
      stream_(stream_on(device(), pool_)),
      lane_(lane_on(stream_, limits.num_sms)) {
  if (limits.step.max_parts > 1)
    transfers_ = std::make_unique<TransferLane>(stream_on(device(), pool_, StreamPriority::high), lane_,
                                                limits.split.transfer_sms);
  if (limits.split.kind != SplitKind::none && transfers_ != nullptr)
    tiles_ = layer_tiles(*model_, limits, transfers_->compute_of(lane_));
  stream_.set_wait_record(std::construct_at(wait_record_.as<WaitRecord>()));
  if (transfers_ != nullptr) transfers_->stream().set_wait_record(stream_.wait_record());
  watch_.add({.record = stream_.wait_record()});
  const StepInputBytes inputs = input_bytes(*model_, limits);
  for (Slot& each : slots_)
    each = {.step = HostMemory(inputs.arrays, device()),
            .samples = HostMemory(inputs.samples, device()),
            .tokens = HostMemory(static_cast<std::size_t>(limits.step.max_samples) * sizeof(std::int32_t), device()),
            .done = Event(device()),
            .logits = {}};
  rows_.reserve(static_cast<std::size_t>(limits.step.max_samples));
  if (on_gpu(device())) {
    padded_.reserve(limits.step);
    enqueue_clear(stream_, arena_.take_bytes(arena_.capacity_bytes()), arena_.capacity_bytes());
    stream_.synchronize();
    arena_.rewind(0);
  }
  inputs_ = take_inputs(*model_, limits, arena_);
  model_mark_ = arena_.mark();
}

Executor::~Executor() {
  if (num_in_flight_ > 0 && !stuck_) drain();  // before the graphs go
}

// A decode step is cut as the size to which it is filled up, so that it needs no graph for each number of sequences.
void Executor::choose_parts(StepPlan& plan) const {
  const auto num_tokens = static_cast<int>(plan.tokens.size());
  const int size = on_gpu(device()) && is_decode(plan) ? decode_batch(num_tokens, limits_) : num_tokens;
  const int prefix = prefix_tokens(limits_.split, tiles_, size);
  plan.prefix_tokens = prefix < num_tokens ? prefix : 0;
}

void Executor::start(const StepPlan& plan, Outcome outcome, Histories histories) {
  require_sound();
  require(num_in_flight_ < kMostInFlight, "executor: {} steps are under way", num_in_flight_);
  validate(plan, limits_.step, limits_.page_size, limits_.num_pages, model_->shape().vocab_size,
           narrow<int>(num_chosen_, "tokens chosen"));
  Choice choice = Choice::none;
  if (outcome == Outcome::tokens) {
    const bool greedy =
        std::ranges::all_of(plan.samples, [](const StepSample& sample) { return sample.params.temperature == 0; });
    choice = greedy && histories.empty() ? Choice::greedy : Choice::sampled;
  }
  guarded([&] {
    enqueue(plan, choice, histories);
    slot().logits = outcome == Outcome::logits && on_gpu(device()) ? enqueue_fetch() : logits_;
    if (on_gpu(device())) slot().done.record(stream_);
  });
  slot().num_tokens = num_chosen_ = outcome == Outcome::tokens ? plan.samples.size() : 0;
  next_slot_ = (next_slot_ + 1) % kMostInFlight;
  ++num_in_flight_;
}

StepResult Executor::finish() {
  require(num_in_flight_ > 0, "executor: no step is under way");
  Slot& oldest = slots_[static_cast<std::size_t>((next_slot_ + kMostInFlight - num_in_flight_) % kMostInFlight)];
  guarded([&] { on_gpu(device()) ? oldest.done.synchronize() : synchronize(); });  // which tells of errors
  refuse_poisoned();
  --num_in_flight_;
  return {.logits = oldest.logits, .tokens = {oldest.tokens.as<std::int32_t>(), oldest.num_tokens}};
}

Tensor Executor::run(const StepPlan& plan) {
  require(num_in_flight_ == 0, "executor: {} steps are under way", num_in_flight_);
  start(plan, Outcome::logits);
  return finish().logits;
}

std::span<const std::int32_t> Executor::sample(const StepPlan& plan, Histories histories) {
  require(num_in_flight_ == 0, "executor: {} steps are under way", num_in_flight_);
  start(plan, Outcome::tokens, histories);
  return finish().tokens;
}

void Executor::compute(const StepPlan& plan) {
  require(num_in_flight_ == 0, "executor: {} steps are under way", num_in_flight_);
  start(plan, Outcome::none);
  finish();
}

void Executor::warm_up() {
  StepPlan plan;
  for (const StepShape& shape : largest_shapes(limits_)) {
    make_warm_up_step(shape, limits_, plan);
    compute(plan);
  }
  decodes_.clear();  // a size that occurs twice was recorded, without what reaches other ranks
}

Tensor Executor::fetch_logits() {
  require_sound();
  require(num_in_flight_ == 0, "executor: {} steps are under way", num_in_flight_);
  if (!on_gpu(device())) return logits_;
  const Tensor logits = enqueue_fetch();
  stream_.synchronize();
  return logits;
}

void Executor::require_sound() const {
  if (stuck_) throw Failure("an earlier step has not ended in time; start again");
  if (!poisoned_.empty()) throw_error<Failure>("an earlier step could not be trusted: {}; start again", poisoned_);
}

// Before what a step has computed is believed. With a step behind it under way a wait may be that one's: neither counts.
void Executor::refuse_poisoned() {
  if (!watch_.any_gave_up()) return;
  drain();  // after which nobody writes the record
  num_in_flight_ = 0;
  num_chosen_ = 0;
  poisoned_ = watch_.what_gave_up();
  throw_error<Timeout>("{}: {}; what the step computed is lost", name_of(device()), poisoned_);
}

// After an error nothing is under way.
template <class Action>
void Executor::guarded(Action action) {
  const auto give_up = [&] {
    drain();
    num_in_flight_ = 0;
    num_chosen_ = 0;
  };
  try {
    action();
  } catch (const Timeout& timeout) {
    stuck_ = true;
    num_in_flight_ = 0;
    if (!on_gpu(device())) throw;
    throw_error<Timeout>("{}: {}; --device cpu works without it", name_of(device()), timeout.what());
  } catch (const LostDevice& lost) {
    give_up();
    throw_error<LostDevice>("{}: {}", name_of(device()), lost.what());
  } catch (const Failure& failure) {
    give_up();
    if (!on_gpu(device())) throw;
    throw_error<Failure>("{}: {}; --device cpu works without it", name_of(device()), failure.what());
  } catch (const InvalidArgument&) {
    give_up();
    refuse_poisoned();  // a rank that has stopped waiting is ahead of the others, whose calls then differ from its own
    throw;
  } catch (...) {
    give_up();
    throw;
  }
}

void Executor::enqueue(const StepPlan& plan, Choice choice, Histories histories) {
  const Span span(stream_, "step");
  cache_.copy_pages(plan.page_copies, lane_);
  place_histories(plan.samples.size(), histories);
  if (on_gpu(device())) {
    const bool decodes = is_decode(plan);
    if (!decodes) load_kernels_of(plan, choice);
    logits_ = decodes ? enqueue_decode(plan, choice) : enqueue_on_gpu(plan, choice);
    logits_.rows = std::ssize(plan.samples);  // without those of sequences that were added
    return;
  }
  logits_ = enqueue_model(plan, place_step(plan, choice), choice);
}

// Copies the histories to where the device reads them, and notes the places in rows_.
void Executor::place_histories(std::size_t num_samples, Histories histories) {
  rows_.clear();
  if (histories.empty()) return;
  require(histories.size() == num_samples, "executor: {} histories of {} samples", histories.size(), num_samples);
  if (host_histories_.data() == nullptr)
    host_histories_ = HostMemory(input_bytes(*model_, limits_).histories, device());
  auto* const host = host_histories_.as<HistoryToken>();
  HistoryToken* const seen_at = on_gpu(device()) ? inputs_.histories : host;
  std::size_t end = 0;
  for (const std::span<const HistoryToken> history : histories) {
    require((end + history.size()) * sizeof(HistoryToken) <= host_histories_.size_bytes(),
            "executor: histories of more than {} tokens", end);
    std::ranges::copy(history, host + end);
    rows_.push_back({.history = seen_at + end, .num_history = static_cast<std::int32_t>(history.size())});
    end += history.size();
  }
  if (on_gpu(device()) && end > 0) enqueue_copy(stream_, seen_at, host, end * sizeof(HistoryToken));
}

// Writes the step where the host keeps it; returns it as the device will see it, where every step begins alike.
StepTensors Executor::place_step(const StepPlan& plan, Choice choice) {
  if (choice == Choice::sampled) {
    auto* const rows = slot().samples.as<SampleRow>();
    std::ranges::transform(plan.samples, rows, sample_row);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      rows[i].history = rows_[i].history;
      rows[i].num_history = rows_[i].num_history;
    }
  }
  return place(plan, limits_.step, slot().step.data(), on_gpu(device()) ? inputs_.arrays : slot().step.data());
}

// cuBLASLt loads kernels when it first sees a size.
void Executor::load_kernels_of(const StepPlan& plan, Choice choice) {
  if (!meet_ || !known_sizes_.emplace(plan.tokens.size(), plan.samples.size(), plan.prefix_tokens, plan.choices).second)
    return;
  {
    const WhileAlone alone(*alone_);
    enqueue_on_gpu(plan, choice);
    stream_.synchronize();
  }
  meet_();
}

Tensor Executor::enqueue_on_gpu(const StepPlan& plan, Choice choice) {
  const StepTensors step = place_step(plan, choice);
  enqueue_copy(stream_, const_cast<std::int32_t*>(step.tokens), slot().step.data(),
               placed_bytes(limits_.step, step.num_page_tables()));
  if (choice == Choice::sampled)
    enqueue_copy(stream_, inputs_.samples, slot().samples.data(), plan.samples.size() * sizeof(SampleRow));
  return enqueue_model(plan, step, choice);
}

Tensor Executor::enqueue_model(const StepPlan& plan, const StepTensors& step, Choice choice) {
  const Slot& before = slots_[static_cast<std::size_t>((next_slot_ + kMostInFlight - 1) % kMostInFlight)];
  if (awaits_tokens(plan))
    take_tokens({.tokens = const_cast<std::int32_t*>(step.tokens),
                 .chosen = const_cast<Slot&>(before).tokens.as<std::int32_t>(),
                 .num_tokens = step.num_tokens,
                 .num_chosen = limits_.step.max_samples},
                lane_);
  arena_.rewind(model_mark_);
  const Execution execution = transfers_ == nullptr ? Execution(lane_) : Execution(lane_, *transfers_);
  const Tensor logits = model_->run(step, cache_.pages(), arena_, execution);
  enqueue_choice(logits, choice);
  return logits;
}

// Tokens are a few bytes, which a GPU writes over the bus.
void Executor::enqueue_choice(const Tensor& logits, Choice choice) {
  if (logits.rows == 0 || choice == Choice::none) return;
  auto* const tokens = slot().tokens.as<std::int32_t>();
  if (choice == Choice::greedy) return argmax({.logits = logits, .tokens = tokens}, lane_);
  SampleParams params{
      .logits = logits, .rows = on_gpu(device()) ? inputs_.samples : slot().samples.as<SampleRow>(), .tokens = tokens};
  if (!on_gpu(device())) {
    const std::size_t most = static_cast<std::size_t>(limits_.step.max_samples) *
                             static_cast<std::size_t>(logits.columns) * sizeof(SampleCandidate);
    if (candidates_.data() == nullptr) candidates_ = HostMemory(most, device());
    params.scratch = candidates_.as<SampleCandidate>();
  }
  heddle::sample(params, lane_);
}

Tensor Executor::enqueue_decode(const StepPlan& plan, Choice choice) {
  const auto num_sequences = static_cast<int>(plan.sequences.size());
  const int batch = decode_batch(num_sequences, limits_);
  if (batch > num_sequences) pad_decode(plan, batch, limits_.page_size, limits_.num_pages, padded_);
  const StepPlan& step = batch > num_sequences ? padded_ : plan;
  Decode& decode = decodes_[{batch, choice, next_slot_, awaits_tokens(plan), plan.prefix_tokens, plan.choices}];
  if (!decode.computed) {
    // Warm-up steps are in one part, with choices of no table.
    if (step.prefix_tokens > 0 || step.choices != StepChoices{}) load_kernels_of(step, choice);
    decode.logits = enqueue_on_gpu(step, choice);
    decode.computed = true;
    return decode.logits;
  }
  if (!decode.graph) {
    decode.graph = Graph(stream_, [&] { decode.logits = enqueue_on_gpu(step, choice); });
    if (meet_) meet_();
  } else {
    place_step(step, choice);  // what the graph copies when it runs
  }
  decode.graph.launch(stream_);
  return decode.logits;
}

Tensor Executor::enqueue_fetch() {
  require(logits_.row_stride == logits_.columns, "executor: the logits' rows do not follow each other");
  Tensor fetched = logits_;
  fetched.data = host_logits_.data();
  const auto elements = static_cast<std::size_t>(fetched.rows) * static_cast<std::size_t>(fetched.columns);
  enqueue_copy(stream_, fetched.data, logits_.data, elements * size_of(fetched.dtype));
  return fetched;
}

// What transfers did not do, computation does not notice.
void Executor::synchronize() {
  stream_.synchronize();
  if (transfers_ != nullptr) transfers_->stream().synchronize();
}

// Waits for what a step that failed has enqueued, since the next one will write where it reads.
void Executor::drain() {
  const auto drain_stream = [this](Stream& stream) {
    try {
      stream.synchronize();
    } catch (const Timeout&) {
      stuck_ = true;
    } catch (...) {  // of the step that is reported already
    }
  };
  drain_stream(stream_);
  if (transfers_ != nullptr) drain_stream(transfers_->stream());
}

std::span<const float> logits_row(const Tensor& logits, std::int64_t row) {
  require(logits.dtype == DType::float32 && row >= 0 && row < logits.rows, "logits: row {} of {}", row, logits.rows);
  const auto columns = static_cast<std::size_t>(logits.columns);
  return {static_cast<const float*>(logits.data) + static_cast<std::size_t>(row * logits.row_stride), columns};
}

}  // namespace heddle
