// bench decode and bench prefill: a model's steps, interleaved with probes of the machine's limits and with a baseline.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cli/bench/baseline.h"
#include "cli/bench/bench.h"
#include "cli/bench/device.h"
#include "cli/bench/operator.h"
#include "cli/bench/record.h"
#include "cli/bench/steps.h"
#include "cli/bench/throughput.h"
#include "cli/format_text.h"
#include "cli/output.h"
#include "engine/engine.h"
#include "machine/cpu.h"
#include "models/llama_config.h"
#include "models/registry.h"
#include "models/rope_config.h"

namespace heddle {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Strings = std::vector<std::string>;

constexpr double kFewAgree = 0.9;  // fraction of equal argmax; near-ties in bfloat16 may differ

enum class Kind : std::uint8_t { decode, prefill };

// FLOPs of one sample: of matmuls, and of attention's scores and sums.
struct Arithmetic {
  double linear = 0;
  double attention = 0;
  double total() const { return linear + attention; }
};

struct CaseSamples {
  std::vector<double> seconds;  // per sample
  std::vector<double> baseline_seconds;
  // Of all devices. Memory: GB/s just before the sample. Arithmetic: GFLOP/s, on a GPU measured once a run.
  std::vector<double> limits;
};

// Ranks that share a device share its memory's rate, too.
int distinct_devices(const RankModels& ranks) {
  std::set<Device> devices;
  for (const RankPart& rank : ranks) devices.insert(rank.model->device());
  return static_cast<int>(devices.size());
}

int default_step_tokens(Device device) {
  return step_limits(device, {}).max_tokens;  // as the engine
}

Arithmetic arithmetic_of(const StepCase& shape, const ModelShape& model, const ModelDescription& description) {
  const double head = static_cast<double>(model.vocab_size * description.hidden.value_or(0));
  const double weights = static_cast<double>(model.weight_bytes_per_step) / static_cast<double>(size_of(model.dtype));
  const double tokens = static_cast<double>(shape.batch) * shape.num_tokens;
  const double steps = std::ceil(static_cast<double>(shape.num_tokens) / shape.step_tokens);
  const double keys_seen = tokens * (shape.context + (shape.num_tokens + 1) / 2.0);
  const double heads = static_cast<double>(description.heads.value_or(0));
  // What a head multiplies for a key: its elements and its value's. A latent is both.
  const KvLayout& cache = model.kv;
  const double elements = cache.plane(0).width + cache.plane(cache.num_planes - 1).width;
  return {.linear = 2 * (weights - head) * tokens + 2 * head * steps * shape.batch,
          .attention = 2 * heads * elements * keys_seen * model.num_layers};
}

std::vector<StepCase> decode_cases(const BenchOptions& options) {
  const int steps = options.tokens == 0 ? 16 : options.tokens;
  std::vector<StepCase> cases;
  for (const auto& [batch, context] : options.cases) cases.push_back({batch, context, steps, 1});
  if (!cases.empty()) return cases;
  for (const int context : options.contexts)
    for (const int batch : options.batches) cases.push_back({batch, context, steps, 1});
  return cases;
}

// Of any case, on any device.
int most_tokens_of_a_step(const BenchOptions& options) {
  int most = std::max({options.step_tokens, default_step_tokens({DeviceKind::cuda, 0}), default_step_tokens({})});
  for (const auto& [batch, context] : options.cases) most = std::max(most, batch);
  for (const int batch : options.batches) most = std::max(most, batch);
  return most;
}

// `step_tokens`: maximum in a step of all sequences.
std::vector<StepCase> prefill_cases(const BenchOptions& options, int step_tokens) {
  std::vector<StepCase> cases;
  for (const int context : options.contexts)
    for (const int batch : options.batches) {
      if (batch > step_tokens)
        throw_error<InputError>(
            "--batch {}: a step of {} tokens has none for some of the prompts; --step-tokens {} or more", batch,
            step_tokens, batch);
      for (const int tokens : options.prompts) cases.push_back({batch, context, tokens, step_tokens / batch});
    }
  return cases;
}

class ModelBench {
 public:
  ModelBench(const BenchOptions& options, Kind kind, const InterruptGuard& guard)
      : options_(options),
        kind_(kind),
        guard_(guard),
        threads_(num_threads(options.model, discover_cpu().usable_threads)) {
    source_ = open_model(options.model.model);
    description_ = describe_model(source_->config());
    EngineOptions engine;
    if (options.model.ranks > 1) engine.max_tokens_per_step = most_tokens_of_a_step(options);
    RankModels ranks = load(*source_, options.model, engine);
    const std::unique_ptr<Model>& model = ranks.front().model;
    const bool on_gpu = model->device().kind == DeviceKind::cuda;
    num_ranks_ = static_cast<int>(ranks.size());
    devices_ = distinct_devices(ranks);
    if (ranks.front().world != nullptr)
      parts_ = {{"tp_mode", name_of(ranks.front().world->mode())},
                {"split_tokens", split_tokens_of(engine.split)},
                {"transfer_sms", on_gpu ? ordered_json(engine.split.transfer_sms) : ordered_json()}};
    fill_ = on_gpu && options.model.num_ranks() == 1 ? ContextFill::random : ContextFill::computed;
    const int step_tokens = options.step_tokens > 0 ? options.step_tokens : default_step_tokens(model->device());
    cases_ = kind == Kind::decode ? decode_cases(options) : prefill_cases(options, step_tokens);
    for (StepCase& one : cases_) one.step_tokens = std::min(one.step_tokens, one.num_tokens);
    for (const StepCase& one : cases_) check_length(one, *model);
    if (!options.baseline.empty()) {
      if (on_gpu && options.baseline == "llama.cpp")
        throw InputError("--compare llama.cpp is a baseline on the CPU: use --device cpu with it, or --compare torch");
      fingerprint_ = fingerprint_of(*source_);
      baseline_.emplace(options.baseline);
    }
    device_ = std::make_unique<BenchDevice>(model->device(), threads_);
    runner_ = std::make_unique<StepRunner>(std::move(ranks), cases_, threads_, options.page_size, engine.split,
                                           engine.tables);
    if (!on_gpu || options.model.num_ranks() > 1) return;  // operators are measured whole
    outline_ = outline_model(
        *source_, {.device = device_->device(), .dtype = options.model.dtype, .compute = options.model.compute});
    operators_.emplace(*device_, options.repeats, std::set<std::string>(), guard);
  }

  BenchResult run() {
    Strings head = kind_ == Kind::decode
                       ? Strings{"batch", "context", "ms/token", "tokens/s", "GB/s", "of memory"}
                       : Strings{"batch", "tokens", "context", "ms", "tokens/s", "TFLOP/s", "of arithmetic"};
    if (operators_ || !device_->on_gpu()) head.insert(head.end(), {"attention", "linear", "other"});
    if (operators_) head.emplace_back("gaps");
    if (baseline_)
      head.insert(head.end(), {options_.baseline + " tokens/s", "ratio", "paired p10-p90", "argmax agrees"});
    rows_.push_back(head);
    ordered_json gpu = gpu_record(device_->device());
    ordered_json cases = ordered_json::array();
    for (const StepCase& one : cases_) cases.push_back(measure(one));
    if (gpu.is_object()) gpu["clock_mhz_after"] = gpu_record(device_->device())["clock_mhz"];
    ordered_json fields;
    fields["device"] = name_of(device_->device());
    fields["gpu"] = std::move(gpu);
    fields["page_size"] = runner_->page_size();
    fields["ranks"] = num_ranks_;
    if (options_.model.context_ranks > 1) fields["context_ranks"] = options_.model.context_ranks;
    fields["devices"] = devices_;
    if (!parts_.empty()) fields.update(parts_);
    fields["context_fill"] = fill_ == ContextFill::random ? "random" : "computed";
    fields["dtype_of_weights"] = std::string(name_of(runner_->shape().dtype));
    fields["weight_bytes_per_step"] = runner_->shape().weight_bytes_per_step;  // of one token
    if (const ExpertReads& experts = runner_->shape().experts; experts.num_experts > 0)
      fields["experts"] = {{"count", experts.num_experts}, {"per_token", experts.top_k}};
    if (baseline_) fields["peer"] = baseline_->hello();
    fields["cases"] = std::move(cases);
    BenchResult result{
        .fields = std::move(fields),
        .table = conditions_text(*device_, runner_->shape().dtype, baseline_ ? &baseline_->hello() : nullptr,
                                 {.count = num_ranks_, .devices = devices_}) +
                 table_text(rows_)};
    if (operators_) {
      result.table += "\nThe operators of these steps, each by itself:\n" + operators_->table();
      if (!operators_->wrong().empty())
        result.failure =
            fmt::format("{} is not what the CPU computes: nothing of this run counts", operators_->wrong());
    }
    return result;
  }

 private:
  void check_length(const StepCase& one, const Model& model) const {
    if (one.length() <= model.shape().max_context) return;
    const std::string text = fmt::format("--context {} and {} tokens more: the model has a context of {}", one.context,
                                         one.num_tokens, model.shape().max_context);
    if (fill_ == ContextFill::computed) throw InputError(text);
    log_warning("{}; measured anyway, with synthetic keys and values", text);
  }

  ordered_json measure(const StepCase& one) {
    runner_->prepare(one, fill_);
    ordered_json result = {{"batch", one.batch}, {"context", one.context}, {"tokens", one.num_tokens}};
    if (kind_ == Kind::prefill) result["step_tokens"] = one.step_tokens;
    if (num_ranks_ > 1) result["prefix_tokens"] = runner_->prefix_tokens();
    if (baseline_) result["peer_case"] = prepare_baseline(one);
    const CaseSamples samples = interleaved_samples();
    const ordered_json check = compare_logits();
    report_times(one, samples, result);
    if (operators_) {
      report_operators(one, median(samples.seconds), result);
    } else if (!device_->on_gpu()) {
      const TimeShares shares = runner_->shares();
      result["time_shares"] = {{"attention", shares.attention}, {"linear", shares.linear}, {"other", shares.other}};
    }
    result["check"] = check;
    add_row(one, result);
    return result;
  }

  json prepare_baseline(const StepCase& one) {
    json request = tokens_json(one, runner_->shape().vocab_size);
    const LlamaConfig config = parse_llama_config(source_->config());
    const RopeFrequencies rope = rope_frequencies(config.rope, config.head_dim);
    request["mode"] = kind_ == Kind::decode ? "decode" : "prefill";
    request["config"] = source_->config().value();
    request["inv_freq"] = rope.inv_freq;
    request["rope_scale"] = rope.scale;
    request["device"] = name_of(device_->device());
    request["context_fill"] = fill_ == ContextFill::random ? "random" : "computed";
    request["model"] = options_.model.model;
    request["fingerprint"] = fingerprint_;
    request["dtype"] = std::string(name_of(runner_->shape().dtype));
    request["threads"] = threads_;
    request["step_tokens"] = one.step_tokens;
    return baseline_->prepare(request);
  }

  CaseSamples interleaved_samples() {
    CaseSamples samples;
    // Before all samples: it takes a GPU to its power limit, which slows down what follows.
    if (kind_ == Kind::prefill && operators_) device_->flops_limit(runner_->shape().dtype);
    runner_->sample();
    if (baseline_) baseline_->sample();
    for (int i = 0; i < options_.repeats; ++i) {
      stop_if_interrupted(guard_);
      // On a GPU the probe also switches back to this process: the first work after another process's turn takes 0.2 ms
      // longer.
      const double read_gbps = kind_ == Kind::decode || operators_ ? device_->read_gbps() : 0;
      const double limit = kind_ == Kind::decode ? read_gbps : device_->flops_limit(runner_->shape().dtype) / 1e9;
      samples.limits.push_back(devices_ * limit);
      if (!operators_) std::this_thread::sleep_for(kBaselineSettle);  // a GPU's probe leaves no spinning threads
      samples.seconds.push_back(runner_->sample());
      if (!baseline_) continue;
      std::this_thread::sleep_for(kBaselineSettle);
      samples.baseline_seconds.push_back(baseline_->sample());
      std::this_thread::sleep_for(kBaselineSettle);
    }
    return samples;
  }

  // Checks that the timed work was computed: logits are finite, and match the baseline's if there is one.
  ordered_json compare_logits() {
    const StepLogits ours = runner_->logits();
    if (!ours.finite) throw Failure("the logits of the timed steps are not finite: nothing of this run counts");
    ordered_json check = {{"finite", true}};
    if (!baseline_) return check;
    const json answer = baseline_->ask({{"check", {{"probes", ours.probes.size()}}}}, kBaselineSampleLimit);
    try {
      const auto argmax = answer.at("argmax").get<std::vector<std::int32_t>>();
      const auto probes = answer.at("probes").get<std::vector<float>>();
      if (argmax.size() != ours.argmax.size() || probes.size() != ours.probes.size())
        throw_error<Failure>("baseline {}: {} rows and {} logits to compare, expected {} and {}", options_.baseline,
                             argmax.size(), probes.size(), ours.argmax.size(), ours.probes.size());
      int agree = 0;
      for (std::size_t i = 0; i < argmax.size(); ++i) agree += argmax[i] == ours.argmax[i] ? 1 : 0;
      float difference = 0;
      float largest = 0;
      for (std::size_t i = 0; i < probes.size(); ++i) {
        difference = std::max(difference, std::abs(probes[i] - ours.probes[i]));
        largest = std::max(largest, std::abs(ours.probes[i]));
      }
      check["rows"] = argmax.size();
      check["argmax_agree"] = agree;
      check["max_logit_difference"] = difference;
      check["largest_logit"] = largest;
      if (agree < kFewAgree * static_cast<double>(argmax.size()))
        write_stderr(
            fmt::format("heddle: warning: the baseline's likeliest token equals Heddle's in only {} of {} rows\n",
                        agree, argmax.size()));
    } catch (const json::exception&) {
      throw_error<Failure>("baseline {}: its answer to a check is malformed", options_.baseline);
    }
    return check;
  }

  // Breaks down a GPU's step: times each operator of the step alone, in the step's shapes, from a graph of calls on
  // distinct operands. The rest of the step is gaps (less than 0 where operators overlap).
  void report_operators(const StepCase& one, double seconds, ordered_json& result) {
    OperatorStep step{.model = *outline_, .sizes = description_, .batch = one.batch, .page_size = runner_->page_size()};
    ordered_json measured = ordered_json::array();
    double attention = 0, linear = 0, all = 0;
    const auto add = [&](int context, int tokens, int times) {
      step.context = context;
      step.tokens = tokens;
      measured.push_back(operators_->measure(step));
      for (const ordered_json& each : measured.back().at("operators")) {
        if (each.contains("failed")) continue;
        const double taken =
            times * each.at("seconds").at("median").get<double>() * each.at("calls_per_step").get<double>();
        const auto name = each.at("operator").get<std::string>();
        all += taken;
        if (name == "attention") attention += taken;
        if (name.starts_with("linear")) linear += taken;
      }
    };
    if (kind_ == Kind::decode) {
      add(one.context + one.num_tokens / 2, 1, one.num_tokens);
    } else {
      for (int done = 0; done < one.num_tokens; done += one.step_tokens)
        add(one.context + done, std::min(one.step_tokens, one.num_tokens - done), 1);
    }
    result["time_shares"] = {{"attention", attention / seconds},
                             {"linear", linear / seconds},
                             {"other", (all - attention - linear) / seconds},
                             {"gaps", (seconds - all) / seconds}};
    result["operator_seconds"] = all;
    result["gap_seconds"] = seconds - all;
    result["operators"] = std::move(measured);
  }

  void report_times(const StepCase& one, const CaseSamples& samples, ordered_json& result) const {
    const double tokens = static_cast<double>(one.batch) * one.num_tokens;
    const double seconds = median(samples.seconds);
    result["seconds"] = spread(samples.seconds);
    result["tokens_per_second"] = tokens / seconds;
    const double limit = median(samples.limits);
    std::vector<double> shares;
    if (kind_ == Kind::decode) {
      const double bytes = runner_->bytes_per_step() * one.num_tokens;
      result["milliseconds_per_token"] = 1e3 * seconds / one.num_tokens;
      result["bytes_per_step"] = runner_->bytes_per_step();
      if (const ExpertReads& experts = runner_->shape().experts; experts.num_experts > 0)
        result["expected_experts"] = expected_experts(experts.num_experts, experts.top_k, one.batch);
      result["gbps"] = bytes / seconds / 1e9;
      result["memory_read_gbps"] = spread(samples.limits);
      result["floor_seconds"] = bytes / (limit * 1e9);
      for (std::size_t i = 0; i < samples.seconds.size(); ++i)
        shares.push_back(bytes / samples.seconds[i] / 1e9 / samples.limits[i]);
    } else {
      const Arithmetic work = arithmetic_of(one, runner_->shape(), description_);
      result["milliseconds"] = 1e3 * seconds;
      result["flops"] = {{"linear", work.linear}, {"attention", work.attention}};
      result["tflops"] = work.total() / seconds / 1e12;
      if (operators_)
        result["matrix_gflops"] = limit;
      else
        result["float32_gflops"] = spread(samples.limits);
      result["floor_seconds"] = work.total() / (limit * 1e9);
      for (std::size_t i = 0; i < samples.seconds.size(); ++i)
        shares.push_back(work.total() / samples.seconds[i] / 1e9 / samples.limits[i]);
    }
    result["floor_share"] = spread(shares);
    if (samples.baseline_seconds.empty()) return;
    result["peer_tokens_per_second"] = tokens / median(samples.baseline_seconds);
    result.update(beside_baseline(samples.seconds, samples.baseline_seconds));
  }

  void add_row(const StepCase& one, const ordered_json& result) {
    const auto number = [&](const char* field) { return result.at(field).get<double>(); };
    const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    const double share = result.at("floor_share").at("median").get<double>();
    Strings row = kind_ == Kind::decode ? Strings{std::to_string(one.batch),
                                                  std::to_string(one.context),
                                                  fmt::format("{:.3f}", number("milliseconds_per_token")),
                                                  fmt::format("{:.2f}", number("tokens_per_second")),
                                                  fmt::format("{:.2f}", number("gbps")),
                                                  percent(share)}
                                        : Strings{std::to_string(one.batch),
                                                  std::to_string(one.num_tokens),
                                                  std::to_string(one.context),
                                                  fmt::format("{:.1f}", number("milliseconds")),
                                                  fmt::format("{:.1f}", number("tokens_per_second")),
                                                  fmt::format("{:.3f}", number("tflops")),
                                                  percent(share)};
    if (result.contains("time_shares")) {
      for (const auto& [kind, part] : result.at("time_shares").items()) row.push_back(percent(part.get<double>()));
    }
    if (baseline_) {
      const ordered_json& paired = result.at("paired_ratio");
      row.push_back(fmt::format("{:.2f}", number("peer_tokens_per_second")));
      row.push_back(fmt::format("{:.3f}", number("ratio_of_medians")));
      row.push_back(fmt::format("{:.3f}-{:.3f}", paired.at("p10").get<double>(), paired.at("p90").get<double>()));
      row.push_back(fmt::format("{}/{}", result.at("check").at("argmax_agree").get<int>(),
                                result.at("check").at("rows").get<int>()));
    }
    rows_.push_back(std::move(row));
  }

  const BenchOptions& options_;
  Kind kind_;
  const InterruptGuard& guard_;
  int threads_;
  std::vector<StepCase> cases_;
  std::unique_ptr<ModelSource> source_;
  ModelDescription description_;
  ContextFill fill_ = ContextFill::computed;
  int num_ranks_ = 1;        // threads, or processes
  ordered_json parts_;       // of several ranks: how they add, and which steps are in two parts
  int devices_ = 1;          // that the ranks run on; the limit is that of one, measured, times as many
  std::string fingerprint_;  // of the model, for the baseline
  std::optional<BenchBaseline> baseline_;
  std::unique_ptr<BenchDevice> device_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<Model> outline_;          // on a GPU, of what runner_ runs
  std::optional<OperatorTimes> operators_;  // on a GPU
  std::vector<Strings> rows_;
};

BenchResult bench_steps(const BenchOptions& options, Kind kind) {
  const InterruptGuard guard;
  try {
    return ModelBench(options, kind, guard).run();
  } catch (const std::exception&) {
    stop_if_interrupted(guard);  // Ctrl-C also ends the baseline; that is not a failure of it
    throw;
  }
}

}  // namespace

BenchResult bench_decode(const BenchOptions& options) {
  return bench_steps(options, Kind::decode);
}

BenchResult bench_prefill(const BenchOptions& options) {
  return bench_steps(options, Kind::prefill);
}

}  // namespace heddle
