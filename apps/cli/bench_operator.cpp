// bench operator: each operator of one step of a model alone, in the step's shapes.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "cli/bench.h"
#include "cli/bench_device.h"
#include "cli/bench_operator_cases.h"
#include "cli/bench_record.h"
#include "cli/output.h"
#include "topology/cpu.h"
#include "weights/shapes.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;
using Strings = std::vector<std::string>;

constexpr int kLeastCalls = 20;  // in a sample
constexpr std::size_t kMostSetsOnCpu = 4;
constexpr std::size_t kMostSets = 256;                       // of operands
constexpr int kCallsFromCache = 100;                         // of what is over in a microsecond or two
constexpr std::size_t kMostSetBytes = std::size_t{8} << 30;  // of all sets together

// More operands than the cache holds, twice, so that each call finds its own in memory.
int sets_for(const OperatorCase& one, const BenchDevice& device) {
  if (one.set_bytes == 0) return 1;
  const std::size_t wanted = 2 * device.cache_bytes() / one.set_bytes + 2;
  const std::size_t affordable = std::max<std::size_t>(1, kMostSetBytes / one.set_bytes);
  return static_cast<int>(std::min<std::size_t>({wanted, affordable, device.on_gpu() ? kMostSets : kMostSetsOnCpu}));
}

int calls_for(const OperatorCase& one, int sets, const BenchDevice& device) {
  if (!device.on_gpu()) return sets;
  const int least = one.set_bytes == 0 ? kCallsFromCache : kLeastCalls;
  return (least + sets - 1) / sets * sets;
}

class OperatorBench {
 public:
  OperatorBench(const BenchOptions& options, const InterruptGuard& guard)
      : options_(options),
        guard_(guard),
        device_(bench_device_named(options.device), num_threads(options.model, discover_cpu().usable_threads)) {
    const bool known = find_known_shape(options.model.model) != nullptr;
    source_ = open_model(known ? "synth:" + options.model.model : options.model.model);
    config_ = parse_llama_config(source_->config());
    const KnownShape* const shape = known ? find_known_shape(options.model.model) : nullptr;
    dtype_ = options.model.dtype.value_or(shape != nullptr ? shape->dtype : DType::bfloat16);
    for (const std::string& name : options.operators) wanted_.insert(name);
  }

  BenchResult run() {
    rows_.push_back({"operator", "shape", "batch", "context", "us", "spread", "GB/s", "TFLOP/s", "floor us", "of floor",
                     "us a step", "error"});
    ordered_json gpu = gpu_record(device_.device());
    ordered_json cases = ordered_json::array();
    for (const int batch : options_.batches)
      for (const int context : options_.contexts) cases.push_back(measure_step(batch, context));
    BenchResult result{.fields = {{"device", name_of(device_.device())}, {"gpu", gpu}}};
    if (gpu.is_object()) result.fields["gpu"]["clock_mhz_after"] = gpu_record(device_.device())["clock_mhz"];
    result.fields["dtype_of_weights"] = std::string(name_of(dtype_));
    result.fields["cases"] = std::move(cases);
    result.table = table_text(rows_);
    if (!wrong_.empty())
      result.failure = fmt::format("{} is not what the CPU computes: nothing of its time counts", wrong_);
    return result;
  }

 private:
  ordered_json measure_step(int batch, int context) {
    const OperatorStep step{.config = config_,
                            .dtype = dtype_,
                            .batch = batch,
                            .context = context,
                            .tokens = std::max(1, options_.tokens),
                            .page_size = options_.page_size,
                            .device = device_.device()};
    ordered_json operators = ordered_json::array();
    double step_seconds = 0;
    double step_floor = 0;
    for (const OperatorCase& one : operator_cases(step)) {
      if (!wanted_.empty() && !wanted_.contains(one.name.substr(0, one.name.find(' ')))) continue;
      stop_if_interrupted(guard_);
      try {
        operators.push_back(measure(one, batch, context));
      } catch (const InvalidArgument& error) {  // an operator that this device does not have
        operators.push_back({{"operator", one.name}, {"shape", one.shape}, {"failed", error.what()}});
        log_warning("{}", error.what());
        continue;
      }
      step_seconds += operators.back().at("seconds").at("median").get<double>() * one.calls_per_step;
      step_floor += operators.back().at("floor_seconds").get<double>() * one.calls_per_step;
    }
    rows_.push_back({"all", "", std::to_string(batch), std::to_string(context), "", "", "", "",
                     fmt::format("{:.1f}", 1e6 * step_floor),
                     step_seconds > 0 ? fmt::format("{:.1f} %", 100 * step_floor / step_seconds) : "-",
                     fmt::format("{:.1f}", 1e6 * step_seconds), ""});
    return {{"batch", batch},
            {"context", context},
            {"tokens", step.tokens},
            {"page_size", step.page_size},
            {"operators", operators},
            {"seconds_per_step", step_seconds},
            {"floor_seconds_per_step", step_floor}};
  }

  ordered_json measure(const OperatorCase& one, int batch, int context) {
    std::vector<double> limits;
    for (int i = 0; i < 3; ++i) limits.push_back(device_.read_gbps());
    const int sets = sets_for(one, device_);
    const int calls = calls_for(one, sets, device_);
    Operands operands(device_.stream());
    const PreparedOperator prepared = one.prepare(operands, sets);
    const double error = prepared.check();
    const bool right = error <= prepared.most_error;
    if (!right && wrong_.empty()) wrong_ = fmt::format("{} ({})", one.name, one.shape);
    const std::vector<double> samples =
        device_.seconds_per_call(calls, options_.repeats, [&](int i) { prepared.call(i % sets); });
    const double seconds = median(samples);
    const double limit = median(limits);
    const double floor = one.bytes / (limit * 1e9);
    rows_.push_back(
        {one.name, one.shape, std::to_string(batch), std::to_string(context), fmt::format("{:.2f}", 1e6 * seconds),
         fmt::format("{:.1f} %", 50 * (quantile(samples, 0.9) - quantile(samples, 0.1)) / seconds),
         fmt::format("{:.0f}", one.bytes / seconds / 1e9), fmt::format("{:.2f}", one.flops / seconds / 1e12),
         fmt::format("{:.2f}", 1e6 * floor), fmt::format("{:.1f} %", 100 * floor / seconds),
         fmt::format("{:.1f}", 1e6 * seconds * one.calls_per_step),
         fmt::format("{:.1e}{}", error, right ? "" : " WRONG")});
    return {{"operator", one.name},
            {"shape", one.shape},
            {"calls_per_step", one.calls_per_step},
            {"bytes", one.bytes},
            {"flops", one.flops},
            {"sets", sets},
            {"calls_per_sample", calls},
            {"seconds", spread(samples)},
            {"gbps", one.bytes / seconds / 1e9},
            {"tflops", one.flops / seconds / 1e12},
            {"memory_read_gbps", spread(limits)},
            {"floor_seconds", floor},
            {"floor_share", floor / seconds},
            {"relative_error", std::isfinite(error) ? ordered_json(error) : ordered_json("not finite")},
            {"most_error", prepared.most_error},
            {"right", right}};
  }

  const BenchOptions& options_;
  const InterruptGuard& guard_;
  BenchDevice device_;
  std::unique_ptr<ModelSource> source_;
  LlamaConfig config_;
  DType dtype_ = DType::bfloat16;
  std::set<std::string> wanted_;
  std::vector<Strings> rows_;
  std::string wrong_;
};

}  // namespace

BenchResult bench_operator(const BenchOptions& options) {
  const InterruptGuard guard;
  return OperatorBench(options, guard).run();
}

}  // namespace heddle
