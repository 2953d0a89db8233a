// bench load: how long a user waits for the first token of a model whose files the page cache holds.
#include <unistd.h>

#include <chrono>
#include <filesystem>
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
#include "cli/synth_folder.h"
#include "engine/model_tokenizer.h"
#include "models/registry.h"
#include "topology/cpu.h"
#include "topology/tuned_store.h"
#include "weights/checkpoint_write.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kLoadSampleLimit = 600s;
constexpr auto kLoadPrepareLimit = 3600s;
constexpr StepCase kFirstToken{.batch = 1, .context = 0, .num_tokens = 1, .step_tokens = 1};

struct LoadTimes {
  std::vector<double> open, load, first_step, total;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A made-up model is written to a folder, since loading it is what is measured; this removes it at the end.
class WrittenModel {
 public:
  WrittenModel(const SyntheticName& name, const InterruptGuard& interrupt) {
    namespace fs = std::filesystem;
    const fs::path cache = default_tuned_store_file().parent_path();
    folder_ = (cache.empty() ? fs::temp_directory_path() : cache) / fmt::format("bench-load.{}.tmp", ::getpid());
    const SyntheticModel model(name);
    write_stderr(fmt::format("heddle: writing {} ({}) to {}, for this run only\n", model.where(),
                             size_text(model.total_bytes()), folder_.string()));
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw_error<Failure>("{}: cannot make this folder: {}", folder_.string(), error.message());
    try {
      write_synthetic_folder(model, folder_, kDefaultShardBytes, interrupt);
    } catch (...) {
      remove();
      throw;
    }
  }
  WrittenModel(const WrittenModel&) = delete;
  WrittenModel& operator=(const WrittenModel&) = delete;
  ~WrittenModel() { remove(); }

  std::string folder() const { return folder_.string(); }

 private:
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path folder_;
};

// Config, tensors' places and, where there is one, the tokenizer; weights and caches; one step.
void load_once(const ModelOptions& model, int threads, LoadTimes* times) {
  const auto begin = Clock::now();
  const std::unique_ptr<ModelSource> source = open_model(model.model);
  find_model_tokenizer(model.model);
  const double opened = seconds_since(begin);
  StepRunner runner(load(*source, model), {kFirstToken}, threads);
  const double loaded = seconds_since(begin);
  runner.prepare(kFirstToken);
  runner.sample();
  const double done = seconds_since(begin);
  if (times != nullptr) {
    times->open.push_back(opened);
    times->load.push_back(loaded - opened);
    times->first_step.push_back(done - loaded);
    times->total.push_back(done);
  } else if (!runner.logits().finite) {
    throw Failure("the logits of the first token are not finite: nothing of this run counts");
  }
}

double peer_sample(BenchPeer& peer) {
  const json answer = peer.ask({{"sample", json::object()}}, kLoadSampleLimit);
  const auto seconds = answer.find("seconds");
  if (seconds == answer.end() || !seconds->is_number()) throw Failure("the peer's answer to a sample has no seconds");
  return seconds->get<double>();
}

BenchResult measure(const BenchOptions& options, const InterruptGuard& guard) {
  ModelOptions model = options.model;
  std::optional<WrittenModel> written;
  if (const auto synthetic = parse_synthetic_name(model.model)) {
    written.emplace(*synthetic, guard);
    model.model = written->folder();
  }
  const int threads = num_threads(model, discover_cpu().usable_threads);
  const std::unique_ptr<ModelSource> source = open_model(model.model);
  load_once(model, threads, nullptr);  // files into the page cache
  std::optional<BenchPeer> peer;
  if (!options.peer.empty()) {
    peer.emplace(options.peer);
    const std::int64_t vocab_size = describe_model(source->config()).vocab_size.value_or(1);
    json request = tokens_json(kFirstToken, vocab_size);
    request.update({{"mode", "load"},
                    {"model", options.model.model},
                    {"fingerprint", fingerprint_of(*source)},
                    {"threads", threads},
                    {"step_tokens", 1}});
    peer->ask({{"case", request}}, kLoadPrepareLimit);
    peer_sample(*peer);
  }
  LoadTimes times;
  std::vector<double> peer_seconds;
  for (int i = 0; i < options.repeats; ++i) {
    stop_if_interrupted(guard);
    load_once(model, threads, &times);
    std::this_thread::sleep_for(20ms);
    if (peer) peer_seconds.push_back(peer_sample(*peer));
  }
  const std::size_t bytes = source->total_bytes();
  BenchResult result;
  result.fields["bytes"] = bytes;
  result.fields["open_seconds"] = spread(times.open);
  result.fields["load_seconds"] = spread(times.load);
  result.fields["first_step_seconds"] = spread(times.first_step);
  result.fields["seconds"] = spread(times.total);
  result.fields["gbps"] = static_cast<double>(bytes) / median(times.total) / 1e9;
  std::vector<std::vector<std::string>> rows{
      {"bytes", "open s", "load s", "first step s", "first token s"},
      {size_text(bytes), fmt::format("{:.3f}", median(times.open)), fmt::format("{:.3f}", median(times.load)),
       fmt::format("{:.3f}", median(times.first_step)), fmt::format("{:.3f}", median(times.total))}};
  if (peer) {
    result.fields["peer"] = peer->hello();
    result.fields["peer_seconds"] = spread(peer_seconds);
    result.fields["ratio_of_medians"] = median(peer_seconds) / median(times.total);
    result.fields["paired_ratio"] = spread(ratios(peer_seconds, times.total));
    rows[0].push_back(options.peer + " s");
    rows[0].push_back("ratio");
    rows[1].push_back(fmt::format("{:.3f}", median(peer_seconds)));
    rows[1].push_back(fmt::format("{:.3f}", median(peer_seconds) / median(times.total)));
  }
  result.table = table_text(rows);
  return result;
}

}  // namespace

BenchResult bench_load(const BenchOptions& options) {
  const InterruptGuard guard;
  try {
    return measure(options, guard);
  } catch (const std::exception&) {
    stop_if_interrupted(guard);  // Ctrl-C ends the peer too, which is then no failure
    throw;
  }
}

}  // namespace heddle
