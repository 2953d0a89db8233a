// bench decode and bench prefill: a model's steps, in turns with what bounds them and with a peer.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "cli/bench.h"
#include "cli/bench_peer.h"
#include "cli/bench_record.h"
#include "cli/bench_steps.h"
#include "cli/format_text.h"
#include "cli/output.h"
#include "models/registry.h"
#include "topology/cpu.h"
#include "topology/measure.h"

namespace heddle {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using nlohmann::ordered_json;
using Strings = std::vector<std::string>;

constexpr auto kSettle = 20ms;         // until the other side's threads have stopped spinning
constexpr auto kPrepareLimit = 3600s;  // a peer may have to convert the model first
constexpr auto kSampleLimit = 600s;
constexpr double kFewAgree = 0.9;  // of argmax, which near-ties in bfloat16 may turn

enum class Kind : std::uint8_t { decode, prefill };

// Of matrices, in one sample; and of attention, scores and sums.
struct Arithmetic {
  double linear = 0;
  double attention = 0;
  double total() const { return linear + attention; }
};

struct CaseSamples {
  std::vector<double> seconds;  // of a sample
  std::vector<double> peer_seconds;
  std::vector<double> limits;  // GB/s of memory, or GFLOP/s of float32, just before
};

double gflops_limit(int threads) {
  return measure_float32_rate({.threads = threads, .passes = 3});
}
double gbps_limit(int threads) {
  return measure_memory_bandwidth({.threads = threads, .passes = 5});
}

Arithmetic arithmetic_of(const StepCase& shape, const ModelShape& model, const ModelDescription& description) {
  const double head = static_cast<double>(model.vocab_size * description.hidden.value_or(0));
  const double weights = static_cast<double>(model.weight_bytes_per_step) / static_cast<double>(size_of(model.dtype));
  const double tokens = static_cast<double>(shape.batch) * shape.num_tokens;
  const double steps = std::ceil(static_cast<double>(shape.num_tokens) / shape.step_tokens);
  const double keys_seen = tokens * (shape.context + (shape.num_tokens + 1) / 2.0);
  const double heads = static_cast<double>(description.heads.value_or(0));
  return {.linear = 2 * (weights - head) * tokens + 2 * head * steps * shape.batch,
          .attention = 4 * heads * model.head_dim * keys_seen * model.num_layers};
}

class ModelBench {
 public:
  ModelBench(const BenchOptions& options, Kind kind, const InterruptGuard& guard)
      : options_(options),
        kind_(kind),
        guard_(guard),
        threads_(num_threads(options.model, discover_cpu().usable_threads)) {
    for (const int context : options.contexts)
      for (const int batch : options.batches)
        cases_.push_back(kind == Kind::decode ? StepCase{batch, context, options.tokens == 0 ? 16 : options.tokens, 1}
                                              : StepCase{1, context, options.tokens == 0 ? 512 : options.tokens, 512});
    for (StepCase& one : cases_) one.step_tokens = std::min(one.step_tokens, one.num_tokens);
    const std::unique_ptr<ModelSource> source = open_model(options.model.model);
    description_ = describe_model(source->config());
    std::unique_ptr<Model> model = load(*source, options.model);
    for (const StepCase& one : cases_)
      if (one.length() > model->shape().max_context)
        throw_error<InputError>("--context {} and {} tokens more: the model has a context of {}", one.context,
                                one.num_tokens, model->shape().max_context);
    if (!options.peer.empty()) {
      fingerprint_ = fingerprint_of(*source);
      peer_.emplace(options.peer);
    }
    runner_ = std::make_unique<StepRunner>(std::move(model), cases_, threads_);
  }

  BenchResult run() {
    Strings head = kind_ == Kind::decode ? Strings{"batch", "context", "ms/token", "tokens/s", "GB/s", "of memory"}
                                         : Strings{"tokens", "context", "ms", "tokens/s", "TFLOP/s", "of float32"};
    head.insert(head.end(), {"attention", "linear", "other"});
    if (peer_) head.insert(head.end(), {options_.peer + " tokens/s", "ratio", "paired p10-p90", "argmax agrees"});
    rows_.push_back(head);
    ordered_json cases = ordered_json::array();
    for (const StepCase& one : cases_) cases.push_back(measure(one));
    ordered_json fields;
    fields["dtype_of_weights"] = std::string(name_of(runner_->shape().dtype));
    fields["weight_bytes_per_step"] = runner_->shape().weight_bytes_per_step;
    if (peer_) fields["peer"] = peer_->hello();
    fields["cases"] = std::move(cases);
    return {.fields = std::move(fields), .table = table_text(rows_)};
  }

 private:
  ordered_json measure(const StepCase& one) {
    runner_->prepare(one);
    ordered_json result = {{"batch", one.batch}, {"context", one.context}, {"tokens", one.num_tokens}};
    if (peer_) result["peer_case"] = prepare_peer(one);
    const CaseSamples samples = take_turns();
    const TimeShares shares = runner_->shares();
    const ordered_json check = compare_logits();
    report_times(one, samples, result);
    result["time_shares"] = {{"attention", shares.attention}, {"linear", shares.linear}, {"other", shares.other}};
    result["check"] = check;
    add_row(one, result);
    return result;
  }

  json prepare_peer(const StepCase& one) {
    json request = tokens_json(one, runner_->shape().vocab_size);
    request["mode"] = kind_ == Kind::decode ? "decode" : "prefill";
    request["model"] = options_.model.model;
    request["fingerprint"] = fingerprint_;
    request["dtype"] = std::string(name_of(runner_->shape().dtype));
    request["threads"] = threads_;
    request["step_tokens"] = one.step_tokens;
    return peer_->ask({{"case", request}}, kPrepareLimit).value("ready", json::object());
  }

  double peer_sample() {
    const json answer = peer_->ask({{"sample", json::object()}}, kSampleLimit);
    const auto seconds = answer.find("seconds");
    if (seconds == answer.end() || !seconds->is_number() || !(seconds->get<double>() > 0))
      throw_error<Failure>("peer {}: its answer to a sample has no seconds", options_.peer);
    return seconds->get<double>();
  }

  CaseSamples take_turns() {
    CaseSamples samples;
    runner_->sample();
    if (peer_) peer_sample();
    for (int i = 0; i < options_.repeats; ++i) {
      stop_if_interrupted(guard_);
      samples.limits.push_back(kind_ == Kind::decode ? gbps_limit(threads_) : gflops_limit(threads_));
      std::this_thread::sleep_for(kSettle);
      samples.seconds.push_back(runner_->sample());
      if (!peer_) continue;
      std::this_thread::sleep_for(kSettle);
      samples.peer_seconds.push_back(peer_sample());
      std::this_thread::sleep_for(kSettle);
    }
    return samples;
  }

  // That what was timed was computed: numbers, and the peer's where there is one.
  ordered_json compare_logits() {
    const StepLogits ours = runner_->logits();
    if (!ours.finite) throw Failure("the logits of the timed steps are not finite: nothing of this run counts");
    ordered_json check = {{"finite", true}};
    if (!peer_) return check;
    const json answer = peer_->ask({{"check", {{"probes", ours.probes.size()}}}}, kSampleLimit);
    try {
      const auto argmax = answer.at("argmax").get<std::vector<std::int32_t>>();
      const auto probes = answer.at("probes").get<std::vector<float>>();
      if (argmax.size() != ours.argmax.size() || probes.size() != ours.probes.size())
        throw_error<Failure>("peer {}: {} rows and {} logits to compare, expected {} and {}", options_.peer,
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
        write_stderr(fmt::format("heddle: warning: the peer's likeliest tokens are ours in {} of {} rows only\n", agree,
                                 argmax.size()));
    } catch (const json::exception&) {
      throw_error<Failure>("peer {}: its answer to a check is not as it should be", options_.peer);
    }
    return check;
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
      result["float32_gflops"] = spread(samples.limits);
      result["floor_seconds"] = work.total() / (limit * 1e9);
      for (std::size_t i = 0; i < samples.seconds.size(); ++i)
        shares.push_back(work.total() / samples.seconds[i] / 1e9 / samples.limits[i]);
    }
    result["floor_share"] = spread(shares);
    if (samples.peer_seconds.empty()) return;
    result["peer_seconds"] = spread(samples.peer_seconds);
    result["peer_tokens_per_second"] = tokens / median(samples.peer_seconds);
    result["ratio_of_medians"] = median(samples.peer_seconds) / seconds;  // above 1: Heddle is faster
    result["paired_ratio"] = spread(ratios(samples.peer_seconds, samples.seconds));
  }

  void add_row(const StepCase& one, const ordered_json& result) {
    const auto number = [&](const char* field) { return result.at(field).get<double>(); };
    const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    const double share = result.at("floor_share").at("median").get<double>();
    Strings row = kind_ == Kind::decode ? Strings{std::to_string(one.batch),
                                                  std::to_string(one.context),
                                                  fmt::format("{:.2f}", number("milliseconds_per_token")),
                                                  fmt::format("{:.2f}", number("tokens_per_second")),
                                                  fmt::format("{:.2f}", number("gbps")),
                                                  percent(share)}
                                        : Strings{std::to_string(one.num_tokens),
                                                  std::to_string(one.context),
                                                  fmt::format("{:.1f}", number("milliseconds")),
                                                  fmt::format("{:.1f}", number("tokens_per_second")),
                                                  fmt::format("{:.3f}", number("tflops")),
                                                  percent(share)};
    for (const char* kind : {"attention", "linear", "other"})
      row.push_back(percent(result.at("time_shares").at(kind).get<double>()));
    if (peer_) {
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
  ModelDescription description_;
  std::string fingerprint_;  // of the model, for a peer
  std::optional<BenchPeer> peer_;
  std::unique_ptr<StepRunner> runner_;
  std::vector<Strings> rows_;
};

BenchResult bench_steps(const BenchOptions& options, Kind kind) {
  const InterruptGuard guard;
  try {
    return ModelBench(options, kind, guard).run();
  } catch (const std::exception&) {
    stop_if_interrupted(guard);  // Ctrl-C ends the peer too, which is then no failure
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
