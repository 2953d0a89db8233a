// bench load: time to the first token of a model whose files are in the page cache.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/pinned_buffer.h"
#include "base/stream.h"
#include "cli/bench/baseline.h"
#include "cli/bench/bench.h"
#include "cli/bench/device.h"
#include "cli/bench/record.h"
#include "cli/bench/steps.h"
#include "cli/format_text.h"
#include "cli/output.h"
#include "cli/synth_folder.h"
#include "engine/model_tokenizer.h"
#include "machine/cpu.h"
#include "machine/tuned_store.h"
#include "models/registry.h"
#include "weights/checkpoint_write.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr StepCase kFirstToken{.batch = 1, .context = 0, .num_tokens = 1, .step_tokens = 1};

struct LoadTimes {
  std::vector<double> open, weights, load, first_step, total;
};

// Lower bound for loading a GPU's weights: seconds to read the stored bytes with as many threads as the loader has, and
// to copy as many bytes from pinned memory.
struct UploadFloor {
  std::vector<double> read, copy;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A synthetic model is first written to a folder, because the benchmark measures loading from files; this removes the
// folder at the end.
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

// Config, tensor headers and, if there is one, the tokenizer; weights and caches; one step.
void load_once(const ModelOptions& model, int threads, LoadTimes* times) {
  const auto begin = Clock::now();
  const std::unique_ptr<ModelSource> source = open_model(model.model);
  find_model_tokenizer(model.model);
  const double opened = seconds_since(begin);
  std::unique_ptr<Model> loaded_model = load(*source, model);
  const double weights = seconds_since(begin);
  StepRunner runner(one_rank(std::move(loaded_model)), {kFirstToken}, threads);
  const double loaded = seconds_since(begin);
  runner.prepare(kFirstToken);
  runner.sample();
  const double done = seconds_since(begin);
  if (times != nullptr) {
    times->open.push_back(opened);
    times->weights.push_back(weights - opened);
    times->load.push_back(loaded - opened);
    times->first_step.push_back(done - loaded);
    times->total.push_back(done);
  } else if (!runner.logits().finite) {
    throw Failure("the logits of the first token are not finite: nothing of this run counts");
  }
}

constexpr std::size_t kFloorPiece = std::size_t{4} << 20;

double seconds_to_read(const ModelSource& source, int threads) {
  struct Rows {
    std::string_view name;
    std::int64_t first, count;
  };
  std::vector<Rows> pieces;
  std::size_t largest = 0;
  for (const std::string_view name : source.names()) {
    const TensorInfo& info = *source.find(name);
    if (info.num_elements() == 0 || info.shape.empty()) continue;
    const std::size_t row_bytes = info.size_bytes / static_cast<std::size_t>(info.shape[0]);
    const auto count = static_cast<std::int64_t>(std::max<std::size_t>(1, kFloorPiece / row_bytes));
    largest = std::max(largest, static_cast<std::size_t>(count) * row_bytes);
    for (std::int64_t first = 0; first < info.shape[0]; first += count)
      pieces.push_back({name, first, std::min(count, info.shape[0] - first)});
  }
  std::atomic<std::size_t> next = 0;
  const auto read = [&](PinnedBuffer& memory) {
    for (std::size_t i = next++; i < pieces.size(); i = next++)
      source.read_rows(pieces[i].name, pieces[i].first, pieces[i].count, memory.data());
  };
  std::vector<PinnedBuffer> memories;
  memories.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) memories.emplace_back(largest);
  const auto begin = Clock::now();
  {
    std::vector<std::jthread> readers;
    readers.reserve(memories.size());
    for (PinnedBuffer& memory : memories) readers.emplace_back([&read, &memory] { read(memory); });
  }
  return seconds_since(begin);
}

double seconds_to_copy(std::size_t size_bytes, Device device) {
  constexpr std::size_t kMostCopied = std::size_t{4} << 30;
  const std::size_t piece = 16 * kFloorPiece;
  const std::size_t pieces = ceil_div(std::clamp(size_bytes, piece, kMostCopied), piece);
  PinnedBuffer from(piece);
  Buffer to(piece, device);
  Stream stream(device);
  enqueue_copy(stream, to.data(), from.data(), piece);
  stream.synchronize();
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < pieces; ++i) enqueue_copy(stream, to.data(), from.data(), piece);
  stream.synchronize();
  return seconds_since(begin) / static_cast<double>(pieces * piece) * static_cast<double>(size_bytes);
}

BenchResult measure(const BenchOptions& options, const InterruptGuard& guard) {
  ModelOptions model = options.model;
  // Checked before gigabytes are written for a missing device.
  const Device device = device_of(*open_model(model.model), model);
  std::optional<WrittenModel> written;
  if (const auto synthetic = parse_synthetic_name(model.model)) {
    written.emplace(*synthetic, guard);
    model.model = written->folder();
  }
  const int threads = num_threads(model, discover_cpu().usable_threads);
  const std::unique_ptr<ModelSource> source = open_model(model.model);
  load_once(model, threads, nullptr);  // brings the files into the page cache
  std::optional<BenchBaseline> baseline;
  if (!options.baseline.empty()) {
    baseline.emplace(options.baseline);
    const std::int64_t vocab_size = describe_model(source->config()).vocab_size.value_or(1);
    json request = tokens_json(kFirstToken, vocab_size);
    request.update({{"mode", "load"},
                    {"model", options.model.model},
                    {"fingerprint", fingerprint_of(*source)},
                    {"threads", threads},
                    {"step_tokens", 1}});
    baseline->prepare(request);
    baseline->sample();
  }
  LoadTimes times;
  UploadFloor floor;
  constexpr int kMostReaders = 12;  // as in weights/weight_upload.cpp
  const bool on_gpu = device.kind == DeviceKind::cuda;
  std::vector<double> baseline_seconds;
  for (int i = 0; i < options.repeats; ++i) {
    stop_if_interrupted(guard);
    if (on_gpu) {
      floor.read.push_back(seconds_to_read(*source, std::clamp(threads, 1, kMostReaders)));
      floor.copy.push_back(seconds_to_copy(source->total_bytes(), device));
    }
    load_once(model, threads, &times);
    std::this_thread::sleep_for(kBaselineSettle);
    if (baseline) baseline_seconds.push_back(baseline->sample());
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
  result.fields["device"] = name_of(device);
  result.fields["gpu"] = gpu_record(device);
  if (on_gpu) {
    const double slower = std::max(median(floor.read), median(floor.copy));
    const double ratio = median(times.weights) / slower;
    result.fields["weights_seconds"] = spread(times.weights);
    result.fields["read_seconds"] = spread(floor.read);
    result.fields["pinned_copy_seconds"] = spread(floor.copy);
    result.fields["floor_seconds"] = slower;
    result.fields["times_the_floor"] = ratio;
    rows[0].insert(rows[0].end(), {"weights s", "read s", "pinned copy s", "times the roofline"});
    for (const double seconds : {median(times.weights), median(floor.read), median(floor.copy)})
      rows[1].push_back(fmt::format("{:.3f}", seconds));
    rows[1].push_back(fmt::format("{:.2f}", ratio));
  }
  if (baseline) {
    result.fields["peer"] = baseline->hello();
    result.fields["peer_seconds"] = spread(baseline_seconds);
    result.fields["ratio_of_medians"] = median(baseline_seconds) / median(times.total);
    result.fields["paired_ratio"] = spread(ratios(baseline_seconds, times.total));
    rows[0].push_back(options.baseline + " s");
    rows[0].push_back("ratio");
    rows[1].push_back(fmt::format("{:.3f}", median(baseline_seconds)));
    rows[1].push_back(fmt::format("{:.3f}", median(baseline_seconds) / median(times.total)));
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
    stop_if_interrupted(guard);  // Ctrl-C also ends the baseline; that is not a failure of it
    throw;
  }
}

}  // namespace heddle
