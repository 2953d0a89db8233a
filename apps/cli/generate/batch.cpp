#include "cli/generate/batch.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cli/sampling_options.h"

namespace heddle {
namespace {

// Runs `action`; its input errors begin with the place of the prompt.
template <class Action>
auto at(const std::string& where, Action action) {
  try {
    return action();
  } catch (const InputError& error) {
    throw_error<InputError>("{}: {}", where, error.what());
  }
}

std::uint64_t seed_of_sample(const Prompt& prompt, int sample) {
  const GenerationSettings& settings = prompt.settings;
  return seed_of(settings.sampling.seed, {.prompt = settings.own_seed ? 0 : static_cast<std::uint64_t>(prompt.index),
                                          .sample = static_cast<std::uint32_t>(sample)});
}

}  // namespace

Batch::Batch(Engine& engine, PromptEncoder& encoder, Printer& printer, std::vector<Prompt> prompts,
             BatchOptions options)
    : engine_(engine), encoder_(encoder), printer_(printer), options_(std::move(options)) {
  for (Prompt& prompt : prompts) add(std::move(prompt));
}

void Batch::add(Prompt prompt) {
  num_answers_ += prompt.error.empty() ? prompt.settings.num_samples : 1;
  budget_ += budget_of(prompt) * prompt.settings.num_samples;
  prompts_.push_back(std::move(prompt));
}

void Batch::step() {
  submit();
  for (const TokenOutput& output : engine_.step()) take(output);
  print();
}

void Batch::submit() {
  while (std::ssize(running_) < options_.max_waiting) {
    const auto ready = std::ranges::find_if(
        groups_, [](const Group& group) { return group.num_to_submit > 0 && !group.computes_prompt; });
    if (ready != groups_.end()) {
      submit_sample(ready);
    } else if (!prompts_.empty()) {
      begin(std::move(prompts_.front()));
      prompts_.pop_front();
    } else {
      return;
    }
  }
}

void Batch::begin(Prompt prompt) {
  const auto encoded = std::make_shared<EncodedPrompt>();
  encoded->prompt = std::move(prompt);
  const std::string& where = encoded->prompt.where;
  std::string error = encoded->prompt.error;
  const int num_samples = error.empty() ? encoded->prompt.settings.num_samples : 1;
  if (error.empty()) {
    try {
      at(where, [&] { encoder_.encode(*encoded); });
    } catch (const InputError& wrong) {
      error = wrong.what();
    }
  }

  num_prompt_tokens_ += std::ssize(encoded->tokens);
  const GroupPlace group = groups_.insert(groups_.end(), {.prompt = encoded, .next = {}, .num_to_submit = num_samples});
  for (int sample = 0; sample < num_samples; ++sample) {
    answers_.push_back({.to = encoded, .sample = sample, .seed = seed_of_sample(encoded->prompt, sample)});
    if (sample == 0) group->next = std::prev(answers_.end());
  }
  if (!error.empty())
    fail(group, error);
  else if (num_samples > 1 && encoded->tokens.size() > 1)
    submit_prompt(group);
}

// Its token is scored, not sampled, because a request must have a result.
void Batch::submit_prompt(GroupPlace group) {
  const EncodedPrompt& prompt = *group->prompt;
  try {
    const std::int64_t id = at(prompt.prompt.where, [&] {
      return engine_.submit({.prompt = prompt.tokens,
                             .max_tokens = 0,
                             .prompt_logprobs = PromptLogprobs{.first = std::ssize(prompt.tokens) - 1},
                             .after_end = AfterEnd::keep});
    });
    running_.emplace(id, Running{.group = group});
    group->computes_prompt = true;
    ++group->num_running;
  } catch (const InputError& error) {
    fail(group, error.what());
  }
}

void Batch::submit_sample(GroupPlace group) {
  const EncodedPrompt& prompt = *group->prompt;
  const GenerationSettings& settings = prompt.prompt.settings;
  const Place answer = group->next;
  try {
    at(prompt.prompt.where, [&] {
      Completion completion(encoder_.tokenizer(), settings.stop);
      Request request{.prompt = prompt.tokens,
                      .sampling = settings.sampling,
                      .max_tokens = settings.max_tokens,
                      .stop_ids = stop_ids_of(prompt.prompt),
                      .num_top_logprobs = settings.num_top_logprobs,
                      .logit_bias = settings.logit_bias,
                      .constraint = constraint_of(prompt.prompt)};
      request.sampling.seed = answer->seed;
      running_.emplace(engine_.submit(std::move(request)), Running{.group = group, .answer = answer});
      answer->completion = std::move(completion);
    });
    ++group->next;
    --group->num_to_submit;
    ++group->num_running;
  } catch (const InputError& error) {
    fail(group, error.what());
  }
}

// The prompt's own, and the model's.
std::vector<std::int32_t> Batch::stop_ids_of(const Prompt& prompt) const {
  check_stop_ids(prompt.settings.stop_ids, engine_.model_shape(), "stop_ids");
  std::vector<std::int32_t> ids = prompt.settings.stop_ids;
  const std::vector<std::int32_t> ends = end_ids_of(prompt);
  ids.insert(ids.end(), ends.begin(), ends.end());
  return ids;
}

// The model's, unless they are to be ignored. As in a chat, the tokenizer's end token ends an answer to messages, too.
std::vector<std::int32_t> Batch::end_ids_of(const Prompt& prompt) const {
  if (prompt.settings.ignore_eos) return {};
  std::vector<std::int32_t> ids = options_.eos_ids;
  if (const auto eos = encoder_.tokenizer().eos_id(); eos && prompt.conversation) ids.push_back(*eos);
  return ids;
}

std::shared_ptr<TokenConstraint> Batch::constraint_of(const Prompt& prompt) {
  if (!prompt.settings.grammar) return nullptr;
  const grammar::GrammarSource& source = *prompt.settings.grammar;
  if (!constraints_) constraints_.emplace(encoder_.tokenizer());
  return constraints_->make(source, name_of(source.kind), end_ids_of(prompt));
}

// Makes one failed answer of all that are not submitted.
void Batch::fail(GroupPlace group, const std::string& error) {
  const Place answer = group->next;
  answer->error = error;
  const int num_others = std::exchange(group->num_to_submit, 0) - 1;
  answers_.erase(std::next(answer), std::next(answer, num_others + 1));
  num_answers_ -= num_others;
  spent_ += num_others * budget_of(answer->to->prompt);
  end(answer);
  close(group);
}

void Batch::take(const TokenOutput& output) {
  const Running running = running_.at(output.request);
  bool ended = output.finish.has_value();
  if (running.answer) {
    take_sampled(**running.answer, output);
    ended = (*running.answer)->ended();
  }
  if (!ended) return;
  running_.erase(output.request);
  --running.group->num_running;
  if (running.answer) {
    end(*running.answer);
  } else {
    running.group->computes_prompt = false;
    running.group->kept = output.request;
    if (output.finish == FinishReason::error) {
      fail(running.group, fmt::format("{}: {}", running.group->prompt->prompt.where, explained(output.error)));
      return;
    }
  }
  close(running.group);
}

void Batch::take_sampled(Answer& answer, const TokenOutput& output) {
  if (output.finish == FinishReason::error) {
    answer.error = fmt::format("{}: {}", answer.to->prompt.where, explained(output.error));
    return;
  }
  const std::int64_t before = std::ssize(answer.completion->tokens());
  answer.completion->push(output);
  spent_ += std::ssize(answer.completion->tokens()) - before;
  if (answer.completion->finished() && !output.finish) engine_.cancel(output.request);  // at a stop string
}

// The weights are read for the first such error only.
std::string Batch::explained(const std::string& error) {
  if (options_.explain && !std::exchange(explained_, true)) return options_.explain(error);
  return error;
}

void Batch::end(Place answer) {
  const std::int64_t sampled = answer->completion ? std::ssize(answer->completion->tokens()) : 0;
  spent_ += budget_of(answer->to->prompt) - sampled;
  if (options_.as_finished) ended_.push_back(answer);
}

// Of each answer. A prompt that is known to be wrong has none.
std::int64_t Batch::budget_of(const Prompt& prompt) const {
  return prompt.error.empty() ? std::min(prompt.settings.max_tokens, engine_.max_length()) : 0;
}

void Batch::close(GroupPlace group) {
  if (group->num_to_submit > 0 || group->num_running > 0) return;
  if (group->kept) engine_.cancel(*group->kept);
  groups_.erase(group);
}

void Batch::print() {
  for (const Place answer : std::exchange(ended_, {})) {
    printer_.print(*answer);
    answers_.erase(answer);
    ++num_printed_;
  }
  while (!options_.as_finished && !answers_.empty()) {
    printer_.print(answers_.front());
    if (!answers_.front().ended()) return;
    answers_.pop_front();
    ++num_printed_;
  }
}

void Batch::print_rest() {
  printer_.cut();
  for (const Answer& answer : answers_) {
    if (!answer.ended()) continue;
    printer_.print(answer);
    ++num_printed_;
  }
}

}  // namespace heddle
