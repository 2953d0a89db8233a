#include "cli/bench/decode_steps.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "cli/bench/decode_cases.h"
#include "cli/bench/record.h"
#include "cli/bench/steps.h"
#include "engine/engine.h"
#include "machine/cpu.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSteps = 8;    // of a sample
constexpr int kWarmUps = 2;  // samples of each form: what happens only the first time

std::vector<StepCase> steps_of(const std::vector<DecodeSample>& samples) {
  std::vector<StepCase> steps;
  for (const DecodeSample& one : samples)
    if (one.left_out.empty()) steps.push_back({.batch = one.tokens, .context = one.context, .num_tokens = kSteps});
  return steps;
}

// For each rank; nothing: unknown.
std::optional<std::size_t> free_bytes(const RankModels& ranks) {
  if (ranks.front().model->device().kind == DeviceKind::cpu) {
    const std::int64_t available = discover_cpu().available_memory_bytes;
    if (available <= 0) return std::nullopt;
    return static_cast<std::size_t>(available) / ranks.size();
  }
  const std::size_t available = available_bytes(ranks);
  return available - std::min(available, kOtherGpuBytes);
}

// The forms that the prepared step takes, separate operators first; alone when `why` says why it takes no other.
std::vector<DecodeChoice> choices_of(const StepRunner& runner, std::string& why) {
  std::vector<DecodeChoice> choices{{}};
  for (const DecodeChoice& choice : fused_choices(runner.device().kind)) {
    std::string refused = runner.why_not_fused(choice);
    if (refused.empty())
      choices.push_back(choice);
    else if (why.empty())
      why = std::move(refused);
  }
  return choices;
}

void measure(StepRunner& runner, DecodeSample& measured, int repeats, double left) {
  runner.prepare({.batch = measured.tokens, .context = measured.context, .num_tokens = kSteps}, ContextFill::random);
  std::string refused;
  const std::vector<DecodeChoice> choices = choices_of(runner, refused);
  if (choices.size() == 1) {
    measured.left_out = std::move(refused);
    return;
  }
  const auto sample = [&](const DecodeChoice& choice) {
    runner.choose_decode(choice);
    return runner.sample() / kSteps;
  };
  sample(choices.front());
  const double expected = sample(choices.front()) * kSteps * static_cast<double>(choices.size()) * (kWarmUps + repeats);
  measured.left_out = why_too_long(expected, left);
  if (!measured.left_out.empty()) return;
  for (const DecodeChoice& choice : choices)
    for (int i = 0; i < kWarmUps; ++i) sample(choice);
  std::vector<std::vector<double>> seconds(choices.size());
  for (int i = 0; i < repeats; ++i)
    for (std::size_t at = 0; at < choices.size(); ++at) seconds[at].push_back(sample(choices[at]));
  measured.plain_seconds = median(seconds[0]);
  for (std::size_t at = 1; at < choices.size(); ++at)
    measured.fused.push_back({.choice = choices[at], .seconds = median(seconds[at])});
}

}  // namespace

std::vector<DecodeSample> measure_decode(const ModelOptions& model, std::vector<DecodeSample> cases, int repeats,
                                         std::chrono::seconds budget) {
  const Clock::time_point begin = Clock::now();
  ModelOptions options = model;
  options.decode = DecodeMode::fused;
  EngineOptions engine;
  RankModels ranks = load(*open_model(options.model), options, engine);
  if (const std::optional<std::size_t> available = free_bytes(ranks))
    leave_out_too_large(cases, *available, [&](const std::vector<DecodeSample>& kept) {
      return bytes_of_steps(ranks, steps_of(kept), true);
    });
  const std::vector<StepCase> steps = steps_of(cases);
  if (steps.empty()) return cases;
  StepRunner runner(std::move(ranks), steps, engine.threads, 0, {}, engine.tables);
  bool is_first = true;
  for (DecodeSample& one : cases) {
    if (!one.left_out.empty()) continue;
    const std::chrono::duration<double> spent = Clock::now() - begin;
    const double left =
        is_first ? std::numeric_limits<double>::infinity() : static_cast<double>(budget.count()) - spent.count();
    if (left <= 0)
      one.left_out = why_too_long(0, left);
    else
      measure(runner, one, repeats, left);
    is_first = is_first && !one.left_out.empty();
  }
  return cases;
}

}  // namespace heddle
