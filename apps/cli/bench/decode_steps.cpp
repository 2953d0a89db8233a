#include "cli/bench/decode_steps.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cli/bench/record.h"
#include "cli/bench/steps.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

constexpr int kSteps = 8;  // of a sample

}  // namespace

std::vector<DecodeSample> measure_decode(const ModelOptions& model, const std::vector<int>& batches,
                                         const std::vector<int>& contexts, int repeats) {
  std::vector<StepCase> cases;
  for (const int batch : batches)
    for (const int context : contexts) cases.push_back({.batch = batch, .context = context, .num_tokens = kSteps});
  ModelOptions options = model;
  options.decode = DecodeMode::fused;
  EngineOptions engine;
  RankModels ranks = load(*open_model(options.model), options, engine);
  StepRunner runner(std::move(ranks), cases, engine.threads, 0, {}, engine.tables);

  std::vector<DecodeSample> samples;
  for (const StepCase& one : cases) {
    runner.prepare(one, ContextFill::random);
    DecodeSample& measured =
        samples.emplace_back(DecodeSample{.tokens = one.batch, .context = one.context, .fused = {}});
    std::vector<DecodeChoice> choices{{}};
    std::string refused;
    for (const DecodeChoice& choice : fused_choices(runner.device().kind)) {
      std::string why = runner.why_not_fused(choice);
      if (why.empty())
        choices.push_back(choice);
      else if (refused.empty())
        refused = std::move(why);
    }
    if (choices.size() == 1) {
      measured.left_out = std::move(refused);
      continue;
    }
    const auto sample = [&](const DecodeChoice& choice) {
      runner.choose_decode(choice);
      return runner.sample() / kSteps;
    };
    for (const DecodeChoice& choice : choices)
      for (int i = 0; i < 2; ++i) sample(choice);  // what happens only the first time
    std::vector<std::vector<double>> seconds(choices.size());
    for (int i = 0; i < repeats; ++i)
      for (std::size_t at = 0; at < choices.size(); ++at) seconds[at].push_back(sample(choices[at]));
    measured.plain_seconds = median(seconds[0]);
    for (std::size_t at = 1; at < choices.size(); ++at)
      measured.fused.push_back({.choice = choices[at], .seconds = median(seconds[at])});
  }
  return samples;
}

}  // namespace heddle
