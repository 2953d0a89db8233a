#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {
namespace {

// Pages for max_sequences full contexts, if kv_bytes hold that many.
int cache_pages(const ModelShape& shape, const EngineOptions& options) {
  require(options.page_size >= 1 && options.max_sequences >= 1 && options.kv_bytes >= 0,
          "engine: page_size {}, max_sequences {}, kv_bytes {}", options.page_size, options.max_sequences,
          options.kv_bytes);
  const KvPages page{.num_layers = shape.num_layers,
                     .num_pages = 1,
                     .page_size = options.page_size,
                     .num_kv_heads = shape.num_kv_heads,
                     .head_dim = shape.head_dim,
                     .dtype = shape.dtype};
  const std::int64_t affordable = options.kv_bytes / static_cast<std::int64_t>(page.size_bytes());
  const std::int64_t useful = checked_mul<std::int64_t>(ceil_div<std::int64_t>(shape.max_context, options.page_size),
                                                        options.max_sequences, "pages of the key-value cache");
  if (affordable < 1)
    throw_error<Failure>("the key-value cache may take {} bytes, one page of {} tokens takes {}", options.kv_bytes,
                         options.page_size, page.size_bytes());
  return narrow<int>(std::min(useful, affordable), "pages of the key-value cache");
}

ExecutorLimits executor_limits(const ModelShape& shape, const EngineOptions& options) {
  const int num_pages = cache_pages(shape, options);
  const auto pages_of_context = ceil_div<std::int64_t>(shape.max_context, options.page_size);
  return {.step = {.max_tokens = options.max_tokens_per_step,
                   .max_sequences = options.max_sequences,
                   .max_samples = options.max_sequences,
                   .max_pages_per_sequence = static_cast<int>(std::min<std::int64_t>(num_pages, pages_of_context))},
          .page_size = options.page_size,
          .num_pages = num_pages};
}

}  // namespace

Engine::Engine(std::unique_ptr<Model> model, const EngineOptions& options)
    : limits_(executor_limits(model->shape(), options)),
      executor_(std::move(model), limits_, options.threads),
      pages_(limits_.num_pages),
      scheduler_(pages_, {.max_tokens = limits_.step.max_tokens,
                          .max_sequences = limits_.step.max_sequences,
                          .page_size = limits_.page_size}),
      sampler_(executor_.model().shape().vocab_size) {
  plan_.reserve(limits_.step);
}

std::int64_t Engine::max_length() const {
  const KvPages& kv = executor_.kv_pages();
  return std::min(model_shape().max_context, std::int64_t{kv.num_pages} * kv.page_size);
}

std::int64_t Engine::submit(Request request) {
  validate(request.sampling);
  if (request.prompt.empty()) throw InputError("the prompt has no tokens: give at least one");
  if (request.max_tokens < 1) throw_error<InputError>("max_tokens is {}, it must be at least 1", request.max_tokens);
  const auto length = std::ssize(request.prompt);
  if (length >= model_shape().max_context)
    throw_error<InputError>(
        "the prompt has {} tokens, the model's context is {} and must hold the answer too: shorten it", length,
        model_shape().max_context);
  if (length >= max_length())
    throw_error<InputError>("the prompt has {} tokens, the key-value cache holds {}: give it more memory", length,
                            max_length());
  for (const std::int32_t token : request.prompt)
    if (token < 0 || token >= model_shape().vocab_size)
      throw_error<InputError>("the prompt has token {}, the model knows 0 to {}: is the tokenizer from another model?",
                              token, model_shape().vocab_size - 1);
  if (request.num_top_logprobs &&
      (*request.num_top_logprobs < 0 || *request.num_top_logprobs > model_shape().vocab_size))
    throw_error<InputError>("logprobs is {}, it must be from 0 to the vocabulary's {}", *request.num_top_logprobs,
                            model_shape().vocab_size);

  const std::int64_t id = next_id_++;
  running_.emplace(id, Running{.last_length = length + std::min(request.max_tokens, max_length() - length),
                               .stop_ids = std::move(request.stop_ids),
                               .num_top_logprobs = request.num_top_logprobs});
  scheduler_.add(id, std::move(request.prompt), request.sampling);
  return id;
}

void Engine::cancel(std::int64_t id) {
  scheduler_.remove(id);
  running_.erase(id);
}

std::span<const TokenOutput> Engine::step() {
  outputs_.clear();
  scheduler_.plan(plan_);
  if (plan_.sequences.empty()) return {};
  const Tensor logits = executor_.run(plan_);
  scheduler_.complete(plan_);

  const KvPages& kv = executor_.kv_pages();
  const std::size_t bytes_per_token =
      2 * kv.bytes_per_page() / static_cast<std::size_t>(kv.page_size) * static_cast<std::size_t>(kv.num_layers);
  statistics_ = {.num_sampled = static_cast<int>(plan_.samples.size()),
                 .bytes_read = model_shape().weight_bytes_per_step};
  for (const StepSequence& step : plan_.sequences) {
    const bool decodes = step.num_tokens == 1 && step.context_len > scheduler_.find(step.request)->prompt_length;
    statistics_.num_prompt_tokens += decodes ? 0 : step.num_tokens;
    statistics_.bytes_read += bytes_per_token * static_cast<std::size_t>(step.context_len);
  }

  for (std::size_t i = 0; i < plan_.samples.size(); ++i) {
    const StepSample& sample = plan_.samples[i];
    append(sample, logits_row(logits, static_cast<std::int64_t>(i)),
           plan_.sequences[static_cast<std::size_t>(sample.sequence)].request);
  }
  return outputs_;
}

void Engine::append(const StepSample& sample, std::span<const float> logits, std::int64_t id) {
  Sequence& sequence = *scheduler_.find(id);
  const Running& running = running_.at(id);
  TokenOutput output{.request = id};
  try {
    output.token = sampler_.sample(logits, sample, sequence.tokens, sequence.prompt_length);
    if (running.num_top_logprobs) {
      output.top.resize(static_cast<std::size_t>(*running.num_top_logprobs));
      output.logprob = sampler_.logprobs(logits, output.token, output.top);
    }
    sequence.tokens.push_back(output.token);
    if (std::ranges::find(running.stop_ids, output.token) != running.stop_ids.end())
      output.finish = FinishReason::stop;
    else if (std::ssize(sequence.tokens) == running.last_length)
      output.finish = FinishReason::length;
  } catch (const Failure& failure) {
    output.error = failure.what();
    output.finish = FinishReason::error;
  }
  if (output.finish) cancel(id);
  outputs_.push_back(std::move(output));
}

}  // namespace heddle
