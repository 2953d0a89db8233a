#include "engine/engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "kernels/sampling/sample.h"

namespace heddle {
namespace {

bool on_gpu(const Model& model) {
  return model.device().kind == DeviceKind::cuda;
}

constexpr std::int64_t kDefaultCacheBytes = std::int64_t{1} << 30;  // on the CPU

// The cache leaves some memory to others.
constexpr std::size_t kCachePercent = 90;

// Bytes for pages of sequences.
std::int64_t bytes_for_pages(Model& model, const EngineOptions& options, const ExecutorLimits& limits,
                             std::size_t available) {
  if (options.kv_bytes || !on_gpu(model)) return options.kv_bytes.value_or(kDefaultCacheBytes);
  const std::size_t spare = cache_shape(model, limits).size_bytes();  // of limits without pages
  const std::size_t taken = step_bytes(model, limits) + spare + kOtherGpuBytes;
  return static_cast<std::int64_t>(available > taken ? (available - taken) / 100 * kCachePercent : 0);
}

// Tokens of a sequence at most, before the cache's size is known.
std::int64_t context_of(const ModelShape& shape, std::optional<std::int64_t> max_context) {
  return std::min(shape.max_context, max_context.value_or(shape.max_context));
}

bool penalised(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
}

// Pages for max_sequences full contexts, or as many as fit into the cache's bytes.
int cache_pages(Model& model, const EngineOptions& options, const ExecutorLimits& limits, std::size_t available) {
  const int page_size = limits.page_size;
  const ModelShape& shape = model.shape();
  const KvPages page = shape.kv_pages(page_size, 1);
  const std::int64_t bytes = bytes_for_pages(model, options, limits, available);
  std::int64_t affordable = bytes / static_cast<std::int64_t>(page.size_bytes());
  const std::int64_t context = context_of(shape, options.max_context);
  const std::int64_t useful = checked_mul<std::int64_t>(ceil_div<std::int64_t>(context, page_size),
                                                        options.max_sequences, "pages of the key-value cache");
  if (!options.kv_bytes && on_gpu(model))
    affordable = std::max(affordable, ceil_div<std::int64_t>(std::min(context, kFewestTokens), page_size));
  if (affordable < 1)
    throw_error<Failure>("the key-value cache may take {} bytes, one page of {} tokens takes {}", bytes, page_size,
                         page.size_bytes());
  return narrow<int>(std::min(useful, affordable), "pages of the key-value cache");
}

}  // namespace

StepLimits step_limits(Device device, const EngineOptions& options) {
  const int usual_tokens = device.kind == DeviceKind::cpu ? 512 : 4096;
  return {.max_tokens = options.max_tokens_per_step > 0 ? options.max_tokens_per_step : usual_tokens,
          .max_sequences = options.max_sequences,
          .max_samples = std::max(options.max_sequences, options.max_logit_rows),
          .max_parts = options.split.kind == SplitKind::none ? 1 : kMostParts,
          .fused_decode = has_fused(options.tables.decode)};
}

int page_size_of(Device device, const EngineOptions& options) {
  if (options.page_size > 0) return options.page_size;
  return device.kind == DeviceKind::cpu ? 32 : 64;
}

ExecutorLimits executor_limits(Model& model, const EngineOptions& options, std::size_t available) {
  require(options.page_size >= 0 && options.max_tokens_per_step >= 0 && options.max_sequences >= 1 &&
              options.kv_bytes.value_or(0) >= 0 && options.max_context.value_or(1) >= 1,
          "engine: page_size {}, max_tokens_per_step {}, max_sequences {}, kv_bytes {}, max_context {}",
          options.page_size, options.max_tokens_per_step, options.max_sequences, options.kv_bytes.value_or(0),
          options.max_context.value_or(1));
  const int page_size = page_size_of(model.device(), options) * model.shape().shard.ranks;
  const auto pages_of_context =
      narrow<int>(ceil_div<std::int64_t>(context_of(model.shape(), options.max_context), page_size),
                  "pages of the model's context");
  ExecutorLimits limits{
      .step = step_limits(model.device(), options), .page_size = page_size, .num_pages = 0, .split = options.split};
  limits.step.max_pages_per_sequence = pages_of_context;
  limits.num_pages = cache_pages(model, options, limits, available);
  limits.step.max_pages_per_sequence = std::min(limits.num_pages, pages_of_context);
  return limits;
}

ExecutorLimits executor_limits(const RankModels& ranks, const EngineOptions& options, std::size_t available) {
  Model& first = *ranks.front().model;
  if (ranks.size() == 1) return executor_limits(first, options, available);
  // Rank 0's share of the cache's bytes.
  EngineOptions of_first = options;
  const int one_each = first.shape().shard.ranks;  // tokens
  const double share = static_cast<double>(first.shape().kv_pages(one_each, 1).size_bytes()) /
                       static_cast<double>(cache_bytes(ranks, one_each, 1));
  if (options.kv_bytes || !on_gpu(first))
    of_first.kv_bytes =
        static_cast<std::int64_t>(static_cast<double>(options.kv_bytes.value_or(kDefaultCacheBytes)) * share);
  return executor_limits(first, of_first, available);
}

Engine::Engine(std::unique_ptr<Model> model, const EngineOptions& options)
    : Engine(one_rank(std::move(model)), options) {}

Engine::Engine(RankModels ranks, const EngineOptions& options)
    : limits_(executor_limits(ranks, options, available_bytes(ranks))),
      max_context_(options.max_context),
      ranks_(std::move(ranks), limits_, options.threads, options.tables),
      pages_(limits_.num_pages),
      scheduler_(pages_, {.max_tokens = limits_.step.max_tokens,
                          .max_sequences = limits_.step.max_sequences,
                          .max_samples = limits_.step.max_samples,
                          .page_size = limits_.page_size,
                          .prefix_cache = options.prefix_cache,
                          .hold = options.hold}),
      sampler_(model_shape().vocab_size),
      overlaps_(num_ranks() == 1 && (options.overlap == Overlap::on ||
                                     (options.overlap == Overlap::automatic && device().kind == DeviceKind::cuda))) {
  for (Started& step : steps_) step.plan.reserve(limits_.step);
}

std::int64_t Engine::max_length() const {
  return std::min(context_of(model_shape(), max_context_), std::int64_t{limits_.num_pages} * limits_.page_size);
}

void Engine::check(const Request& request) const {
  validate(request.sampling);
  const std::int64_t vocab_size = model_shape().vocab_size;
  const auto check_top = [&](int num_top) {
    if (num_top < 0 || num_top > vocab_size)
      throw_error<InputError>("logprobs is {}, it must be from 0 to the vocabulary's {}", num_top, vocab_size);
  };
  if (request.num_top_logprobs) check_top(*request.num_top_logprobs);
  if (request.prompt_logprobs) check_top(request.prompt_logprobs->num_top);

  const auto length = std::ssize(request.prompt);
  if (request.prompt.empty()) throw InputError("the prompt has no tokens: give at least one");
  const bool only_scored = request.prompt_logprobs && request.max_tokens == 0;
  if (request.min_tokens < 0) throw_error<InputError>("min_tokens is {}, it must be at least 0", request.min_tokens);
  if (request.max_tokens < 1 && !only_scored)
    throw_error<InputError>("max_tokens is {}, it must be at least 1", request.max_tokens);
  if (only_scored && length < 2)
    throw InputError("the text has one token, and a text's first token has no log-probability: give at least two");
  const std::int64_t answer = only_scored ? 0 : 1;  // tokens that must have room
  if (length + answer > model_shape().max_context)
    throw_error<InputError>("the prompt has {} tokens, the model's context is {}{}: shorten it", length,
                            model_shape().max_context, answer > 0 ? " and must hold the answer too" : "");
  if (length + answer > context_of(model_shape(), max_context_))
    throw_error<InputError>("the prompt has {} tokens, the context is limited to {}{}: shorten it, or raise the limit",
                            length, *max_context_, answer > 0 ? " and must hold the answer too" : "");
  if (length + answer > max_length())
    throw_error<InputError>("the prompt has {} tokens, the key-value cache holds {}: give it more memory", length,
                            max_length());
  if (request.prompt_logprobs &&
      (request.prompt_logprobs->first < 1 || request.prompt_logprobs->first > length - 1 + answer))
    throw_error<InputError>("log-probabilities from token {} of a prompt of {} tokens: give 1 to {}",
                            request.prompt_logprobs->first, length, length - 1 + answer);
  if (std::ssize(request.logit_bias) > kMostLogitBiases)
    throw_error<InputError>("logit_bias has {} tokens, at most {} are supported", request.logit_bias.size(),
                            kMostLogitBiases);
  for (const LogitBias& bias : request.logit_bias) {
    if (bias.id < 0 || bias.id >= vocab_size)
      throw_error<InputError>("logit_bias has token {}, the model knows 0 to {}", bias.id, vocab_size - 1);
    if (!(std::abs(bias.bias) <= kLargestLogitBias))
      throw_error<InputError>("logit_bias of token {} is {}, it must be from -{} to {}", bias.id, bias.bias,
                              kLargestLogitBias, kLargestLogitBias);
  }
  for (const std::int32_t token : request.prompt)
    if (token < 0 || token >= vocab_size)
      throw_error<InputError>("the prompt has token {}, the model knows 0 to {}: is the tokenizer from another model?",
                              token, vocab_size - 1);
}

std::int64_t Engine::submit(Request request) {
  check(request);
  const auto length = std::ssize(request.prompt);
  SequenceGoals goals{.sampling = request.sampling,
                      .samples = request.max_tokens > 0,
                      .owner = request.owner,
                      .same_prompt_as = request.same_prompt_as};
  Running running{.last_length = length + std::min(request.max_tokens, max_length() - length),
                  .stop_ids = std::move(request.stop_ids),
                  .num_top_logprobs = request.num_top_logprobs,
                  .after_end = request.after_end,
                  .penalised = penalised(request.sampling),
                  .constraint = std::move(request.constraint)};
  if (const auto& wanted = request.prompt_logprobs) {
    goals.first_scored = static_cast<int>(wanted->first);
    running.num_top_prompt_logprobs = wanted->num_top;
  }
  if (running.penalised)
    running.history.emplace(request.prompt, request.logit_bias);
  else if (!request.logit_bias.empty())
    running.history.emplace(std::span<const std::int32_t>(), request.logit_bias);
  if (request.min_tokens > 0 && !running.stop_ids.empty()) hold_back_ends(request, running);
  const std::int64_t id = next_id_++;
  running_.emplace(id, std::move(running));
  scheduler_.add(id, std::move(request.prompt), goals);
  return id;
}

void Engine::hold_back_ends(const Request& request, Running& running) const {
  running.first_end = std::ssize(request.prompt) + request.min_tokens;
  running.biases = request.logit_bias;
  if (!running.history) running.history.emplace(std::span<const std::int32_t>());
  for (const std::int32_t id : running.stop_ids) running.history->set_bias(id, -kLargestLogitBias);
}

void Engine::allow_ends(Running& running) {
  running.first_end = 0;
  for (const std::int32_t id : running.stop_ids) {
    double bias = 0;
    for (const LogitBias& own : running.biases) bias += own.id == id ? own.bias : 0;
    running.history->set_bias(id, bias);
  }
  if (!running.penalised && running.biases.empty()) running.history.reset();
}

EngineStatus Engine::status() const {
  return {.num_running = scheduler_.num_running(),
          .num_waiting = scheduler_.num_waiting(),
          .num_pages = pages_.num_pages(),
          .num_free_pages = pages_.num_free(),
          .num_cached_pages = scheduler_.num_idle_cached_pages(),
          .page_size = limits_.page_size,
          .num_ranks = num_ranks(),
          .rank_bytes = rank_bytes_,
          .counters = scheduler_.counters()};
}

std::vector<RequestProgress> Engine::progress(std::size_t most) const {
  std::vector<RequestProgress> list;
  scheduler_.for_each([&](const Sequence& sequence, bool running) {
    if (list.size() == most) return;
    const auto phase = !running                                         ? RequestPhase::waiting
                       : sequence.computed < sequence.prompt_length - 1 ? RequestPhase::prefill
                                                                        : RequestPhase::decode;
    list.push_back({.id = sequence.id,
                    .phase = phase,
                    .num_prompt_tokens = sequence.prompt_length,
                    .num_output_tokens = std::ssize(sequence.tokens) - sequence.prompt_length,
                    .num_computed = sequence.computed,
                    .num_pages = static_cast<int>(sequence.pages.pages().size())});
  });
  return list;
}

void Engine::end(std::int64_t id) {
  const auto running = running_.find(id);
  if (running == running_.end()) return;
  if (running->second.after_end == AfterEnd::keep)
    scheduler_.keep(id);
  else
    scheduler_.remove(id);
  running_.erase(running);
}

void Engine::cancel(std::int64_t id) {
  scheduler_.remove(id);
  running_.erase(id);
}

std::span<const TokenOutput> Engine::step() {
  outputs_.clear();
  if (scheduler_.idle()) return {};  // steps still in flight belong to requests that have ended
  try {
    if (executor().num_in_flight() == 0 && !start_step()) return {};
    if (executor().num_in_flight() < Executor::kMostInFlight && may_be_followed(started(1))) start_step();
    finish_step();
  } catch (...) {
    give_up();
    throw;
  }
  return outputs_;
}

// The step that was started last (1), or the one before it (2).
Engine::Started& Engine::started(int steps_ago) {
  return steps_[static_cast<std::size_t>((next_step_ + Executor::kMostInFlight - steps_ago) % Executor::kMostInFlight)];
}

void Engine::count_parts(const StepPlan& plan) {
  const bool wanted =
      limits_.split.kind != SplitKind::none && std::ssize(plan.tokens) >= std::int64_t{limits_.split.min_tokens};
  part_counts_.tile_tokens = executor().tiles().granule();
  ++part_counts_.steps;
  part_counts_.in_two_parts += plan.prefix_tokens > 0 ? 1 : 0;
  part_counts_.below_two_tiles += wanted && plan.prefix_tokens == 0 ? 1 : 0;
}

// Returns false when there is nothing to compute.
bool Engine::start_step() {
  if (executor().num_in_flight() > 0) follow(started(1));
  Started& step = steps_[static_cast<std::size_t>(next_step_)];
  scheduler_.plan(step.plan);
  if (step.plan.sequences.empty()) return false;
  ranks_.choose(step.plan);
  count_parts(step.plan);
  step.statistics = statistics_of(step.plan);
  note_started(step.plan);
  step.chooses = chooses_on_device(step.plan);
  const Histories histories = step.chooses ? histories_of(step.plan) : Histories();
  step.has_histories = !histories.empty();
  if (step.chooses)
    ranks_.start(step.plan, Outcome::tokens, histories);
  else
    ranks_.start(step.plan, Outcome::logits);
  scheduler_.complete(step.plan);
  next_step_ = (next_step_ + 1) % Executor::kMostInFlight;
  return true;
}

// Allows the next step to be planned before the tokens of `before` are known: placeholders name the samples that will
// choose them. A sequence whose last token is among them needs no further step.
void Engine::follow(const Started& before) {
  for (std::size_t i = 0; i < before.plan.samples.size(); ++i) {
    const std::int64_t id = before.plan.sequences[static_cast<std::size_t>(before.plan.samples[i].sequence)].request;
    const auto running = running_.find(id);
    if (running == running_.end()) continue;
    Sequence& sequence = *scheduler_.find(id);
    if (std::ssize(sequence.tokens) + 1 == running->second.last_length)
      sequence.paused = true;
    else
      sequence.tokens.push_back(~static_cast<std::int32_t>(i));
  }
}

// False with penalties: the next step would need the unknown tokens on the host. False with biases too: the executor
// places the histories of one step at a time.
bool Engine::may_be_followed(const Started& step) const {
  return overlaps_ && step.chooses && !step.has_histories;
}

// True if the step's only outputs are tokens.
bool Engine::chooses_on_device(const StepPlan& plan) const {
  if (num_ranks() > 1) return false;  // rank 0 alone has the logits (RankGroup)
  if (device().kind == DeviceKind::cpu ? !overlaps_ : model_shape().vocab_size > kMostGpuVocabulary) return false;
  return std::ranges::all_of(plan.samples, [&](const StepSample& sample) {
    const std::int64_t id = plan.sequences[static_cast<std::size_t>(sample.sequence)].request;
    const Running& running = running_.at(id);
    return sample.scored == StepSample::kNone && !running.num_top_logprobs && !running.constraint;
  });
}

Histories Engine::histories_of(const StepPlan& plan) {
  histories_.clear();
  bool any = false;
  for (const StepSample& sample : plan.samples) {
    const Running& running = running_.at(plan.sequences[static_cast<std::size_t>(sample.sequence)].request);
    any = any || running.history;
    histories_.push_back(running.history ? running.history->tokens() : std::span<const HistoryToken>());
  }
  if (!any) histories_.clear();
  return histories_;
}

void Engine::finish_step() {
  const Started& step = started(executor().num_in_flight());
  const StepResult result = ranks_.finish();
  logits_ = result.logits;
  tokens_ = result.tokens;
  statistics_ = step.statistics;
  count_bytes(step.plan);
  for (std::size_t i = 0; i < step.plan.samples.size(); ++i) {
    const StepSample& sample = step.plan.samples[i];
    const std::int64_t id = step.plan.sequences[static_cast<std::size_t>(sample.sequence)].request;
    if (!running_.contains(id)) continue;  // ended since the step was started, or by an earlier row that was not finite
    outputs_.push_back(output_of(step.plan, i, id));
    statistics_.num_sampled += sample.scored == StepSample::kNone ? 1 : 0;
    if (outputs_.back().finish == FinishReason::error)
      cancel(id);
    else if (outputs_.back().finish)
      end(id);
  }
}

void Engine::give_up() {
  while (executor().num_in_flight() > 0) {
    try {
      ranks_.finish();
    } catch (...) {  // nothing is in flight afterwards; the first error has already been reported
    }
  }
  scheduler_.start_over();
}

std::span<const float> Engine::logits_of(std::size_t sample_idx) {
  if (!tokens_.empty()) logits_ = ranks_.first().fetch_logits();
  return logits_row(logits_, static_cast<std::int64_t>(sample_idx));
}

std::int32_t Engine::sampled_token(const StepPlan& plan, std::size_t sample_idx, const Running& running) {
  const StepSample& sample = plan.samples[sample_idx];
  if (!tokens_.empty()) {
    if (tokens_[sample_idx] != kUnsoundRow) return tokens_[sample_idx];
    if (executor().num_in_flight() > 0)  // the logits are overwritten
      throw_error<Failure>("the model's logits are not finite at position {}; are its weights damaged?",
                           sample.position);
  }
  const std::optional<TokenHistory>& history = running.history;
  std::span<const float> logits = logits_of(sample_idx);
  if (running.constraint) logits = constrained(logits, *running.constraint);
  return sampler_.sample(logits, sample, history ? history->tokens() : std::span<const HistoryToken>());
}

// The logits of the tokens that a constraint allows; the others have -inf. Throws Failure when it allows none.
std::span<const float> Engine::constrained(std::span<const float> logits, TokenConstraint& constraint) {
  const std::span<const std::uint64_t> allowed = constraint.allowed();
  allowed_logits_.assign(logits.size(), -std::numeric_limits<float>::infinity());
  bool any = false;
  for (std::size_t word = 0; word < allowed.size(); ++word)
    for (std::uint64_t bits = allowed[word]; bits != 0; bits &= bits - 1) {
      const std::size_t id = 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
      if (id >= logits.size()) break;
      allowed_logits_[id] = logits[id];
      any = true;
    }
  if (!any) throw Failure("no token of the model can continue what the answer's grammar asks for");
  return allowed_logits_;
}

void Engine::note_started(const StepPlan& plan) {
  const auto now = std::chrono::steady_clock::now();
  for (const StepSequence& step : plan.sequences)
    if (Running& running = running_.at(step.request); !running.started) running.started = now;
}

void Engine::count_bytes(const StepPlan& plan) {
  std::size_t num_tokens = 0;
  for (const StepSequence& step : plan.sequences) num_tokens += static_cast<std::size_t>(step.context_len);
  rank_bytes_.resize(static_cast<std::size_t>(num_ranks()));
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const RankGroup::Reads reads = ranks_.reads_of(rank);
    rank_bytes_[static_cast<std::size_t>(rank)] += static_cast<double>(
        reads.weight_bytes_of_step(std::ssize(plan.tokens)) + reads.cache_bytes_per_token * num_tokens);
  }
}

StepStatistics Engine::statistics_of(const StepPlan& plan) {
  const std::size_t bytes_per_token = ranks_.cache_bytes_per_token();
  StepStatistics statistics{.bytes_read = ranks_.weight_bytes_of_step(std::ssize(plan.tokens))};
  for (const StepSequence& step : plan.sequences) {
    const bool decodes = step.num_tokens == 1 && step.context_len > scheduler_.find(step.request)->prompt_length;
    (decodes ? statistics.num_decoded : statistics.num_prompt_tokens) += step.num_tokens;
    statistics.bytes_read += bytes_per_token * static_cast<std::size_t>(step.context_len);
  }
  return statistics;
}

TokenOutput Engine::output_of(const StepPlan& plan, std::size_t sample_idx, std::int64_t id) {
  const StepSample& sample = plan.samples[sample_idx];
  Sequence& sequence = *scheduler_.find(id);
  Running& running = running_.at(id);
  TokenOutput output{.request = id};
  if (running.started) output.started = *running.started;
  try {
    if (sample.scored != StepSample::kNone) {
      output.token = sample.scored;
      output.prompt_index = sample.position;
      output.top.resize(static_cast<std::size_t>(running.num_top_prompt_logprobs));
      output.logprob = sampler_.score(logits_of(sample_idx), sample.scored, sample.position, output.top);
      output.rank = rank_among(logits_of(sample_idx), sample.scored);
      sequence.goals.first_scored = sample.position + 1;
      if (sample.position + 1 == running.last_length) output.finish = FinishReason::length;
      return output;
    }
    output.token = sampled_token(plan, sample_idx, running);
    if (running.num_top_logprobs) {
      output.top.resize(static_cast<std::size_t>(*running.num_top_logprobs));
      output.logprob = sampler_.logprobs(logits_of(sample_idx), output.token, output.top);
      output.rank = rank_among(logits_of(sample_idx), output.token);
    }
    if (running.penalised) running.history->add_text(output.token);
    if (running.constraint) running.constraint->accept(output.token);
    if (sequence.tokens.back() < 0)  // a later step has been started
      sequence.tokens.back() = output.token;
    else
      sequence.tokens.push_back(output.token);
    if (running.first_end > 0 && std::ssize(sequence.tokens) >= running.first_end) allow_ends(running);
    if (std::ranges::find(running.stop_ids, output.token) != running.stop_ids.end() ||
        (running.constraint && running.constraint->complete()))
      output.finish = FinishReason::stop;
    else if (std::ssize(sequence.tokens) == running.last_length)
      output.finish = FinishReason::length;
  } catch (const Failure& failure) {
    output.error = failure.what();
    output.finish = FinishReason::error;
  }
  return output;
}

}  // namespace heddle
