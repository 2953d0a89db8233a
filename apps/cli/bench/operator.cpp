#include "cli/bench/operator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cli/bench/bench.h"
#include "cli/bench/record.h"
#include "cli/output.h"
#include "machine/cpu.h"
#include "machine/device_choice.h"
#include "machine/gpu.h"
#include "weights/shapes.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;
using Strings = std::vector<std::string>;

constexpr std::int64_t kFewRows = 16;
constexpr int kLeastCalls = 20;         // in a sample
constexpr std::size_t kMostSets = 256;  // of operands
constexpr int kCallsFromCache = 100;    // of what is over in a microsecond or two
constexpr double kSustained = 0.08;     // seconds: until a GPU at its power limit runs at the clock that it can keep
constexpr double kMostCalls = 4000;
constexpr std::size_t kMostSetBytes = std::size_t{8} << 30;  // of all sets together

// More operands than the cache holds, twice, so that each call finds its own in memory.
int sets_for(const OperatorCase& one, const BenchDevice& device) {
  if (one.set_bytes == 0) return 1;
  const std::size_t wanted = 2 * device.cache_bytes() / one.set_bytes + 2;
  const std::size_t affordable = std::max<std::size_t>(1, kMostSetBytes / one.set_bytes);
  return static_cast<int>(std::min({wanted, affordable, kMostSets}));
}

// `bound_seconds`: of a call that arithmetic bounds, at the rate that the device keeps up; 0 where memory does.
int calls_for(const OperatorCase& one, int sets, const BenchDevice& device, double bound_seconds) {
  if (!device.on_gpu()) return one.set_bytes == 0 ? kLeastCalls : sets;
  int least = one.set_bytes == 0 ? kCallsFromCache : kLeastCalls;
  if (bound_seconds > 0) least = std::max(least, static_cast<int>(std::min(kSustained / bound_seconds, kMostCalls)));
  return (least + sets - 1) / sets * sets;
}

std::string percent_text(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

}  // namespace

OperatorTimes::OperatorTimes(BenchDevice& device, int repeats, std::set<std::string> wanted,
                             const InterruptGuard& guard)
    : device_(device), repeats_(repeats), wanted_(std::move(wanted)), guard_(guard) {
  rows_.push_back({"operator", "shape", "batch", "context", "us", "spread", "GB/s", "TFLOP/s", "roofline us",
                   "% of roofline", "us a step", "error"});
}

void OperatorTimes::compare_with(BenchBaseline& baseline, const std::string& name) {
  baseline_ = &baseline;
  rows_.front().insert(rows_.front().end(), {name + " us", "ratio"});
}

std::string OperatorTimes::table() const {
  return table_text(rows_);
}

ordered_json OperatorTimes::measure(const OperatorStep& step) {
  ordered_json operators = ordered_json::array();
  std::vector<double> limits(device_.on_gpu() ? 5 : 3);
  for (double& limit : limits) limit = device_.read_gbps();
  double step_seconds = 0;
  double step_floor = 0;
  for (const OperatorCase& one : operator_cases(step)) {
    if (!wanted_.empty() && !wanted_.contains(one.name.substr(0, one.name.find(' ')))) continue;
    stop_if_interrupted(guard_);
    try {
      operators.push_back(measure(one, step, median(limits)));
    } catch (const InvalidArgument& error) {  // this device does not have it for these shapes
      operators.push_back({{"operator", one.name}, {"shape", one.shape}, {"failed", error.what()}});
      log_warning("{}", error.what());
      continue;
    }
    step_seconds += operators.back().at("seconds").at("median").get<double>() * one.calls_per_step;
    step_floor += operators.back().at("floor_seconds").get<double>() * one.calls_per_step;
  }
  rows_.push_back({"all", "", std::to_string(step.batch), std::to_string(step.context), "", "", "", "",
                   fmt::format("{:.1f}", 1e6 * step_floor),
                   step_seconds > 0 ? percent_text(step_floor / step_seconds) : "-",
                   fmt::format("{:.1f}", 1e6 * step_seconds), ""});
  if (baseline_ != nullptr) rows_.back().insert(rows_.back().end(), {"", ""});
  return {{"batch", step.batch},
          {"context", step.context},
          {"tokens", step.tokens},
          {"page_size", step.page_size},
          {"memory_read_gbps", spread(limits)},
          {"operators", operators},
          {"seconds_per_step", step_seconds},
          {"floor_seconds_per_step", step_floor}};
}

ordered_json OperatorTimes::measure(const OperatorCase& one, const OperatorStep& step, double gbps_limit) {
  const int sets = sets_for(one, device_);
  Operands operands(device_.stream());
  const PreparedOperator prepared = one.prepare(operands, sets);
  const double error = prepared.check();
  const bool right = error <= prepared.most_error;
  if (!right && wrong_.empty()) wrong_ = fmt::format("{} ({})", one.name, one.shape);
  ordered_json record = {{"operator", one.name}, {"shape", one.shape}};
  // Few rows are far below what arithmetic bounds.
  const double flops_limit = step.rows() > kFewRows ? device_.flops_limit(step.dtype()) : 0;
  const double memory_floor = one.bytes / (gbps_limit * 1e9);
  const double arithmetic_floor = flops_limit > 0 ? one.flops / flops_limit : 0.0;
  const double floor = std::max(memory_floor, arithmetic_floor);
  const int calls = calls_for(one, sets, device_, arithmetic_floor > memory_floor ? arithmetic_floor : 0);
  const Samples samples = interleaved_samples(one, prepared, step, {.sets = sets, .calls = calls}, record);
  const double seconds = median(samples.seconds);
  record.update({{"calls_per_step", one.calls_per_step},
                 {"bytes", one.bytes},
                 {"flops", one.flops},
                 {"sets", sets},
                 {"calls_per_sample", calls},
                 {"seconds", spread(samples.seconds)},
                 {"gbps", one.bytes / seconds / 1e9},
                 {"tflops", one.flops / seconds / 1e12},
                 {"flops_limit", flops_limit},
                 {"floor_seconds", floor},
                 {"floor_share", floor / seconds},
                 {"relative_error", std::isfinite(error) ? ordered_json(error) : ordered_json("not finite")},
                 {"most_error", prepared.most_error},
                 {"right", right}});
  rows_.push_back({one.name, one.shape, std::to_string(step.batch), std::to_string(step.context),
                   fmt::format("{:.2f}", 1e6 * seconds),
                   percent_text((quantile(samples.seconds, 0.9) - quantile(samples.seconds, 0.1)) / 2 / seconds),
                   fmt::format("{:.0f}", one.bytes / seconds / 1e9), fmt::format("{:.2f}", one.flops / seconds / 1e12),
                   fmt::format("{:.2f}", 1e6 * floor), percent_text(floor / seconds),
                   fmt::format("{:.1f}", 1e6 * seconds * one.calls_per_step),
                   fmt::format("{:.1e}{}", error, right ? "" : " WRONG")});
  if (baseline_ == nullptr) return record;
  if (samples.baseline_seconds.empty()) {
    rows_.back().insert(rows_.back().end(), {"-", "-"});
    return record;
  }
  record.update(beside_baseline(samples.seconds, samples.baseline_seconds));
  rows_.back().insert(rows_.back().end(), {fmt::format("{:.2f}", 1e6 * median(samples.baseline_seconds)),
                                           fmt::format("{:.3f}", record.at("ratio_of_medians").get<double>())});
  return record;
}

OperatorTimes::Samples OperatorTimes::interleaved_samples(const OperatorCase& one, const PreparedOperator& prepared,
                                                          const OperatorStep& step, Sample sample,
                                                          ordered_json& record) {
  const auto call = [&](int i) { prepared.call(i % sample.sets); };
  if (baseline_ == nullptr) return {.seconds = device_.seconds_per_call(sample.calls, repeats_, call)};
  nlohmann::json request = baseline_step(step);
  request.update(one.of_baseline);
  request["operator"] = one.name.substr(0, one.name.find(' '));
  request["sets"] = sample.sets;
  request["calls"] = sample.calls;
  request["threads"] = device_.threads();
  const nlohmann::json ready = baseline_->prepare(request);
  record["peer_case"] = ready;
  if (const auto refused = ready.find("refused"); refused != ready.end()) {
    log_warning("the baseline does not run {}: {}", one.name, refused->dump());
    return {.seconds = device_.seconds_per_call(sample.calls, repeats_, call)};
  }
  const std::function<double()> ours = device_.timer(sample.calls, call);
  Samples samples;
  for (int i = 0; i < repeats_; ++i) {
    stop_if_interrupted(guard_);
    ours();  // not counted, and the baseline does not count its first either
    samples.seconds.push_back(ours());
    std::this_thread::sleep_for(kBaselineSettle);
    samples.baseline_seconds.push_back(baseline_->sample());
    std::this_thread::sleep_for(kBaselineSettle);
  }
  return samples;
}

BenchResult bench_operator(const BenchOptions& options) {
  const InterruptGuard guard;
  if (options.baseline == "llama.cpp")
    throw InputError("--compare llama.cpp is a baseline of decode and prefill, of whole models; operators have torch");
  const bool known = find_known_shape(options.model.model) != nullptr;
  const std::unique_ptr<ModelSource> source = open_model(known ? "synth:" + options.model.model : options.model.model);
  require_one_device(options.model.devices);
  const bool cpu_asked = options.model.device && options.model.device->kind == DeviceKind::cpu;
  const Device device = choose_device(options.model.device, cpu_asked ? GpuDiscovery{} : discover_gpus(), [](Device) {
                          return std::string();
                        }).device;
  BenchDevice bench(device, num_threads(options.model, discover_cpu().usable_threads));
  std::optional<BenchBaseline> baseline;
  if (!options.baseline.empty()) baseline.emplace(options.baseline + "-operators");
  OperatorTimes times(bench, options.repeats, {options.operators.begin(), options.operators.end()}, guard);
  if (baseline) times.compare_with(*baseline, options.baseline);
  const std::unique_ptr<Model> outline =
      outline_model(*source, {.device = device, .dtype = options.model.dtype, .compute = options.model.compute});
  OperatorStep step{.model = *outline,
                    .sizes = describe_model(source->config()),
                    .tokens = std::max(1, options.tokens),
                    .page_size = options.page_size > 0 ? options.page_size : default_page_size(device)};
  BenchResult result{.fields = {{"device", name_of(device)}, {"gpu", gpu_record(device)}}};
  result.fields["dtype_of_weights"] = std::string(name_of(step.dtype()));
  if (baseline) result.fields["peer"] = baseline->hello();
  ordered_json cases = ordered_json::array();
  std::vector<std::pair<int, int>> wanted = options.cases;
  if (wanted.empty())
    for (const int batch : options.batches)
      for (const int context : options.contexts) wanted.emplace_back(batch, context);
  for (const auto& [batch, context] : wanted) {
    step.batch = batch;
    step.context = context;
    cases.push_back(times.measure(step));
  }
  if (result.fields["gpu"].is_object()) result.fields["gpu"]["clock_mhz_after"] = gpu_record(device)["clock_mhz"];
  result.fields["cases"] = std::move(cases);
  result.table = conditions_text(bench, step.dtype(), baseline ? &baseline->hello() : nullptr) + times.table();
  if (!times.wrong().empty())
    result.failure = fmt::format("{} is not what the CPU computes: nothing of its time counts", times.wrong());
  return result;
}

}  // namespace heddle
