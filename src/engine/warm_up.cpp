#include "engine/warm_up.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/step_memory.h"

namespace heddle {
namespace {

// Steps with each number of sequences: a graph is recorded for a step that follows one under way and for one that does
// not, each in either of the executor's slots, at the second such step.
constexpr std::int64_t kStepsOfSize = 8;
constexpr int kFewestTokens = 16;  // of a prompt
constexpr int kTokensBehind = 80;  // behind a step of the largest size: then prefill may split their keys over SMs

void run(Engine& engine, std::vector<Request> requests) {
  std::vector<std::int64_t> ids;
  for (Request& request : requests) ids.push_back(engine.submit(std::move(request)));
  try {
    while (!engine.idle()) engine.step();
  } catch (...) {
    for (const std::int64_t id : ids) engine.cancel(id);  // else they would run beside the caller's
    throw;
  }
}

Request request_of(std::vector<std::int32_t> prompt, std::int64_t max_tokens, double temperature) {
  return {.prompt = std::move(prompt), .sampling = {.temperature = temperature}, .max_tokens = max_tokens};
}

// Sequences that end one after the other, those that no graph lies between together.
void run_decode(Engine& engine, int sequences, double temperature) {
  const std::int64_t longest = engine.max_length() - 1;
  std::int64_t steps = 0;
  std::vector<Request> requests;
  for (int i = 1; i <= sequences; ++i) {
    if (graph_batch(i) != graph_batch(i - 1)) steps += kStepsOfSize;
    requests.push_back(request_of({0}, std::min(longest, steps), temperature));
  }
  run(engine, std::move(requests));
}

// Each prompt begins with another token, so that none finds its first ones in the cache of prefixes.
void run_prompts(Engine& engine, std::int64_t largest) {
  const std::int64_t longest = engine.max_length() - 1;
  std::int32_t first = 0;
  const auto run_prompt = [&](std::int64_t length) {
    std::vector<std::int32_t> prompt(static_cast<std::size_t>(length), 0);
    prompt.front() = static_cast<std::int32_t>(++first % engine.model_shape().vocab_size);
    run(engine, {request_of(std::move(prompt), 1, 0)});
  };
  if (largest + kTokensBehind <= longest) run_prompt(largest + kTokensBehind);
  for (std::int64_t length = std::min(largest, longest); length >= kFewestTokens; length /= 2) run_prompt(length);
}

}  // namespace

void warm_up(Engine& engine, const WarmUp& what) {
  require(engine.idle(), "warm_up: the engine is at work");
  run_prompts(engine, what.step_tokens);
  for (const double temperature : {0.0, 1.0}) run_decode(engine, what.sequences, temperature);
}

}  // namespace heddle
