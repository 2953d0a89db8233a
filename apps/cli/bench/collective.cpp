// bench collective: operation x size, on the ranks of a fabric, compared with the wire's lower bound and, if available,
// NCCL.
#include "cli/bench/collective.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/bench/bench.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "collectives/all_gather.h"
#include "collectives/barrier.h"
#include "fabric/launch.h"
#include "fabric/nvlink/nccl_collectives.h"
#include "fabric/run_ranks.h"
#include "machine/collective_cost.h"
#include "machine/machine.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

// Measurements of one algorithm and one size on every rank. The slowest rank's figures are recorded.
struct CallTimes {
  std::vector<double> samples;       // of this rank
  std::vector<double> rank_medians;  // of all ranks
  int blocks = 0;                    // per GPU, see GraphSamples

  double seconds() const { return *std::max_element(rank_medians.begin(), rank_medians.end()); }
  double skew() const {
    return seconds() <= 0 ? 0 : 1.0 - *std::min_element(rank_medians.begin(), rank_medians.end()) / seconds();
  }
};

double traffic_of(Collective collective, int ranks, double bytes) {
  if (collective == Collective::all_reduce) return all_reduce_traffic(ranks, bytes);
  if (collective == Collective::broadcast) return broadcast_traffic(ranks, bytes);
  return exchange_traffic(ranks, bytes);
}

// Rounds up to whole packets in every rank's piece.
std::size_t rounded_size(std::size_t bytes, int ranks) {
  const std::size_t unit = 16 * static_cast<std::size_t>(ranks);
  return std::max(unit, bytes / unit * unit);
}

std::vector<std::size_t> sizes_of(const CollectiveBenchOptions& options, int ranks) {
  std::vector<std::size_t> sizes;
  if (options.to_bytes < rounded_size(1, ranks))
    throw_error<InputError>("--to {}: sizes are multiples of 16 bytes for each of {} ranks, so of {}", options.to_bytes,
                            ranks, rounded_size(1, ranks));
  for (std::size_t bytes = options.from_bytes; bytes <= options.to_bytes;
       bytes *= static_cast<std::size_t>(options.factor))
    if (const std::size_t size = rounded_size(bytes, ranks); sizes.empty() || sizes.back() != size)
      sizes.push_back(size);
  return sizes;
}

constexpr std::size_t kMostTwoPhase = std::size_t{8} << 20;
constexpr std::size_t kMoreThanCache = std::size_t{128} << 20;  // of a GPU

CommunicatorOptions workspace_options(const CollectiveBenchOptions& options, DeviceKind device) {
  return {.largest_bytes = options.to_bytes,
          .two_phase_bytes = device == DeviceKind::cuda ? kMostTwoPhase : 0,
          .pipeline_bytes = options.pipeline_bytes};
}

// One rank of a benchmark.
class RankBench {
 public:
  RankBench(const CollectiveBenchOptions& options, Fabric& fabric, Stream& stream, const TunedStore& tuned)
      : options_(options),
        fabric_(fabric),
        stream_(stream),
        on_gpu_(fabric.device().kind == DeviceKind::cuda),
        communicator_(fabric, whole_world(fabric), stream, communicator_options(options, fabric, tuned)),
        buffers_(communicator_, stream, memory(), rounded_size(options.to_bytes, fabric.size()), options.dtype),
        own_median_(sizeof(float), fabric.device()),
        all_medians_(sizeof(float) * static_cast<std::size_t>(fabric.size()), fabric.device()),
        cache_(on_gpu_ && options.cache == Cache::cold ? Buffer(kMoreThanCache, fabric.device()) : Buffer()) {
    if (options.register_heap) communicator_.vendor().register_heap();
    fabric.meet();  // all memory is allocated before any rank waits
  }

  Memory memory() const { return options_.memory.value_or(on_gpu_ ? Memory::symmetric : Memory::any); }

  // Uses the tuned tables' choice, or the forced one.
  CallTimes measure(Collective collective, std::size_t bytes, const std::optional<Choice>& choice, int repeats) {
    communicator_.force(choice);
    used_ = communicator_.choose(collective, bytes, memory());
    return measure(bytes, used_, repeats, [&](int i) { buffers_.call(collective, bytes, i); });
  }
  bool has_room_for(Collective collective, std::size_t bytes, const Choice& choice) {
    communicator_.force(choice);
    return communicator_.choose(collective, bytes, memory()) == choice;
  }
  const Choice& used() const { return used_; }  // of the previous measurement
  void use(Collective collective, const CutOffs& table) { communicator_.use(collective, table); }

  // Precondition: the buffers are of the kind to measure.
  CallTimes measure_vendor(Collective collective, std::size_t bytes) {
    return measure(bytes, {Algorithm::vendor}, options_.repeats,
                   [&](int i) { buffers_.call_vendor(collective, bytes, i); });
  }
  void use_vendor_windows() { buffers_.use_vendor_windows(); }

  void check_all_reduce(std::size_t bytes) {
    communicator_.force(options_.forced);
    if (communicator_.choose(Collective::all_reduce, bytes, memory()).algorithm == Algorithm::vendor)
      return;  // the operation has its own order
    buffers_.check_all_reduce(bytes, 1);
  }

 private:
  static CommunicatorOptions communicator_options(const CollectiveBenchOptions& options, const Fabric& fabric,
                                                  const TunedStore& tuned) {
    CommunicatorOptions all = workspace_options(options, fabric.device().kind);
    all.tuned = options.tune ? nullptr : &tuned;
    // Calls are enqueued while the stream is held back, so no call may wait on the host.
    const bool in_stream = fabric.device().kind == DeviceKind::cpu && fabric.has(Capability::peer_addresses);
    all.checked_calls = in_stream ? CommunicatorOptions::kAsSuitsTheFabric : 0;
    return all;
  }
  static Ranks whole_world(const Fabric& fabric) {
    Ranks ranks(static_cast<std::size_t>(fabric.size()));
    for (int i = 0; i < fabric.size(); ++i) ranks[static_cast<std::size_t>(i)] = i;
    return ranks;
  }

  // Small calls: many per sample. A call by puts is many tasks, and all must fit into a CPU stream's queue.
  int calls_of(std::size_t bytes, const Choice& choice) const {
    if (on_gpu_) return bytes <= (std::size_t{1} << 20) ? 20 : bytes <= (std::size_t{64} << 20) ? 6 : 2;
    if (bytes > (std::size_t{256} << 10)) return 1;
    return choice.algorithm == Algorithm::put ? std::max(1, 64 / fabric_.size()) : 200;
  }

  CallTimes measure(std::size_t bytes, const Choice& choice, int repeats, FunctionRef<void(int)> call) {
    const int calls = calls_of(bytes, choice);
    for (int i = 0; i < 3; ++i) call(i);
    fabric_.synchronize(stream_);
    CallTimes measured;
    if constexpr (kHaveCuda)
      if (on_gpu_) {
        GraphSamples graph =
            graph_samples(communicator_, stream_, calls, repeats, std::span(cache_.data(), cache_.size_bytes()), call);
        measured.samples = std::move(graph.seconds);
        measured.blocks = graph.blocks;
      }
    if (!on_gpu_)
      for (int i = 0; i < repeats; ++i)
        measured.samples.push_back(seconds_per_call(communicator_, stream_, calls, call));
    measured.rank_medians = of_all_ranks(median(measured.samples));
    return measured;
  }

  std::vector<double> of_all_ranks(double mine);

  const CollectiveBenchOptions& options_;
  Fabric& fabric_;
  Stream& stream_;
  bool on_gpu_;
  Communicator communicator_;
  CollectiveBuffers buffers_;
  Buffer own_median_, all_medians_;
  Buffer cache_;  // overwritten to clear a GPU's cache
  Choice used_;
};

std::vector<double> RankBench::of_all_ranks(double mine) {
  const auto microseconds = static_cast<float>(mine * 1e6);  // float32 tells them to a ten millionth
  std::vector<float> all(static_cast<std::size_t>(fabric_.size()));
  enqueue_copy(stream_, own_median_.data(), &microseconds, sizeof(float));
  communicator_.force(std::nullopt);
  all_gather(communicator_, {own_median_.data(), all_medians_.data(), 1, DType::float32}, stream_);
  enqueue_copy(stream_, all.data(), all_medians_.data(), all.size() * sizeof(float));
  fabric_.synchronize(stream_);
  std::vector<double> seconds;
  seconds.reserve(all.size());
  for (const float value : all) seconds.push_back(static_cast<double>(value) * 1e-6);
  return seconds;
}

// The choices to try for a size: those that give every lane some work, and not too much.
std::vector<Choice> candidates(Collective collective, std::size_t bytes, const Fabric& fabric) {
  if (!fabric.has(Capability::peer_addresses)) return {{Algorithm::put}};
  if (fabric.device().kind != DeviceKind::cuda) {
    std::vector<Choice> all{{Algorithm::low_latency}, {Algorithm::direct}};
    if (collective == Collective::all_reduce) all.push_back({Algorithm::two_phase});
    if (collective == Collective::broadcast) all.push_back({Algorithm::pipelined});
    return all;
  }
  constexpr std::size_t kPollAtMost = std::size_t{8} << 20, kSmallBlocksAtMost = std::size_t{1} << 20;
  std::vector<Choice> all;
  const auto try_all = [&](Algorithm algorithm, std::size_t packets) {
    constexpr std::size_t kMostEach = 32;  // packets per lane
    for (const int blocks : {1, 2, 4, 8, 16, 32, 64})
      for (const int threads : {128, 256, 512}) {
        if (threads < 512 && (bytes > kSmallBlocksAtMost || algorithm == Algorithm::direct)) continue;
        const auto others = static_cast<std::size_t>((blocks - 1) * threads);
        const bool idle = blocks > 1 && others >= packets;
        const bool few = (others + static_cast<std::size_t>(threads)) * kMostEach < packets && blocks < 16;
        if (!idle && !few) all.push_back({algorithm, blocks, threads});
      }
  };
  const std::size_t whole = bytes / 16, piece = whole / static_cast<std::size_t>(fabric.size());
  const bool is_whole = collective == Collective::all_reduce || collective == Collective::broadcast;
  if (bytes <= kPollAtMost) try_all(Algorithm::low_latency, is_whole ? whole : piece);
  if (bytes <= kPollAtMost && collective == Collective::all_reduce) try_all(Algorithm::two_phase, piece);
  try_all(Algorithm::direct, piece);
  if (bytes > kSmallBlocksAtMost && collective == Collective::all_reduce)
    for (const int blocks : {32, 64, 96, kMaxBlocks}) all.push_back({Algorithm::pipelined, blocks});
  if (fabric.has(Capability::vendor_collectives) && collective != Collective::barrier)
    all.push_back({Algorithm::vendor});
  return all;
}

// The best choice for each size, up to the geometric mean with the next size.
CutOffs tuned_table(RankBench& bench, Collective collective, std::span<const std::size_t> sizes, const Fabric& fabric) {
  CutOffs table;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CutOff line;
    double best = std::numeric_limits<double>::max();
    for (const Choice& choice : candidates(collective, sizes[i], fabric)) {
      if (!bench.has_room_for(collective, sizes[i], choice)) continue;
      constexpr int kRepeats = 7;
      const double seconds = bench.measure(collective, sizes[i], choice, kRepeats).seconds();  // same on all ranks
      if (seconds >= best) continue;
      best = seconds;
      line.choice = choice;
    }
    if (i + 1 < sizes.size())
      line.up_to_bytes =
          static_cast<std::size_t>(std::sqrt(static_cast<double>(sizes[i]) * static_cast<double>(sizes[i + 1])));
    if (!table.empty() && table.back().choice == line.choice)
      table.back().up_to_bytes = line.up_to_bytes;
    else
      table.push_back(line);
  }
  return table;
}

ordered_json json_of(const CallTimes& measured) {
  ordered_json json = spread(measured.samples);
  json["rank_medians"] = measured.rank_medians;
  json["seconds"] = measured.seconds();
  json["skew"] = measured.skew();
  if (measured.blocks > 0) json["blocks"] = measured.blocks;
  return json;
}

struct CollectiveReport {
  int ranks = 0;
  std::string fabric;
  ordered_json cases = ordered_json::array();
  std::vector<std::vector<std::string>> rows;
};

void measure_size(RankBench& bench, const CollectiveBenchOptions& options, Fabric& fabric, Collective collective,
                  std::size_t bytes, CollectiveReport& report) {
  const double traffic =
      collective == Collective::barrier ? 0 : traffic_of(collective, fabric.size(), static_cast<double>(bytes));
  const CallTimes ours = bench.measure(collective, bytes, options.forced, options.repeats);
  const Choice choice = bench.used();
  const double gbps = traffic / ours.seconds() * 1e-9;
  ordered_json one{{"collective", name_of(collective)},
                   {"bytes", bytes},
                   {"algorithm", name_of(choice.algorithm)},
                   {"blocks", ours.blocks > 0 ? ours.blocks : choice.blocks},
                   {"threads", choice.threads},
                   {"traffic_bytes", traffic},
                   {"bus_gbps", gbps},
                   {"ours", json_of(ours)}};
  std::vector<std::string> row{std::string(name_of(collective)),
                               collective == Collective::barrier ? "-" : size_text(bytes),
                               std::string(name_of(choice.algorithm)),
                               std::to_string(ours.blocks > 0 ? ours.blocks : choice.blocks),
                               fmt::format("{:.2f}", ours.seconds() * 1e6),
                               fmt::format("{:.1f}", 100 * ours.skew()),
                               collective == Collective::barrier ? "-" : fmt::format("{:.2f}", gbps)};
  if (fabric.device().kind == DeviceKind::cuda && collective == Collective::barrier) {
    row.emplace_back("-");
  } else if (fabric.device().kind == DeviceKind::cuda) {
    const double floor = wire_seconds(traffic, kH200PairBytesPerSecond);
    one["floor_seconds"] = floor;
    row.push_back(fmt::format("{:.0f} %", 100 * floor / ours.seconds()));
  }
  if (fabric.device().kind == DeviceKind::cuda) {
    const auto predicted = predicted_seconds(collective, choice.algorithm, fabric.size(), bytes);
    if (predicted) one["predicted_seconds"] = *predicted;
    row.push_back(predicted ? fmt::format("{:.2f}", *predicted * 1e6) : "-");
  }
  if (fabric.has(Capability::vendor_collectives) && collective != Collective::barrier) {  // NCCL has no barrier
    const CallTimes nccl = bench.measure_vendor(collective, bytes);
    one["nccl"] = json_of(nccl);
    one["ratio_to_nccl"] = nccl.seconds() / ours.seconds();
    row.push_back(fmt::format("{:.2f}", nccl.seconds() * 1e6));
    row.push_back(nccl.blocks > 0 ? std::to_string(nccl.blocks) : "?");
    row.push_back(fmt::format("{:.2f}", nccl.seconds() / ours.seconds()));
  }
  report.cases.push_back(std::move(one));
  report.rows.push_back(std::move(row));
}

// Whether NCCL (2.28) has kernels for registered windows; other operations run as on ordinary memory. Also, a broadcast
// on windows after sends and receives on them hung or failed here (docs/notes/collectives.md).
bool gains_by_windows(std::string_view collective) {
  return collective == "all_reduce" || collective == "reduce_scatter" || collective == "all_gather";
}

// Measures NCCL again on registered windows; the better of the two counts.
void measure_windows(RankBench& bench, CollectiveReport& report) {
  bench.use_vendor_windows();
  for (std::size_t i = 0; i < report.cases.size(); ++i) {
    ordered_json& one = report.cases[i];
    if (!one.contains("nccl")) continue;
    if (!gains_by_windows(one["collective"].get<std::string>())) {
      report.rows[i].insert(report.rows[i].end() - 1, "-");
      continue;
    }
    const CallTimes windows =
        bench.measure_vendor(*collective_named(one["collective"].get<std::string>()), one["bytes"].get<std::size_t>());
    one["nccl_windows"] = json_of(windows);
    const double best = std::min(windows.seconds(), one["nccl"]["seconds"].get<double>());
    const double ratio = best / one["ours"]["seconds"].get<double>();
    one["ratio_to_nccl"] = ratio;
    report.rows[i].back() = fmt::format("{:.2f}", windows.seconds() * 1e6);
    report.rows[i].push_back(fmt::format("{:.2f}", ratio));
  }
}

// Throws, on every rank, for options that the fabric does not support.
void require_possible(const CollectiveBenchOptions& options, const Fabric& fabric) {
  if (options.register_heap && !fabric.has(Capability::vendor_collectives))
    throw_error<InputError>("--register-heap needs NCCL, which the fabric {} does not have here", fabric.name());
  if (!options.forced) return;
  const Algorithm algorithm = options.forced->algorithm;
  const bool by_addresses = algorithm != Algorithm::put && algorithm != Algorithm::vendor;
  const bool fits = by_addresses                     ? fabric.has(Capability::peer_addresses)
                    : algorithm == Algorithm::vendor ? fabric.has(Capability::vendor_collectives)
                                                     : fabric.device().kind == DeviceKind::cpu;
  if (!fits)
    throw_error<InputError>("--algorithm {} does not work on the fabric {}{}", name_of(algorithm), fabric.name(),
                            algorithm == Algorithm::vendor ? ", which has no NCCL here"
                            : by_addresses                 ? ", whose ranks have no peer addresses; put does"
                                                           : ", whose ranks are GPUs");
}

// `keep` receives the results so far after each collective.
void bench_rank(const CollectiveBenchOptions& options, Fabric& fabric, Stream& stream, TunedStore& tuned,
                FunctionRef<void(const CollectiveReport&)> keep) {
  require_possible(options, fabric);
  RankBench bench(options, fabric, stream, tuned);
  const std::vector<std::size_t> all_sizes = sizes_of(options, fabric.size());
  CollectiveReport report{.ranks = fabric.size(), .fabric = std::string(fabric.name())};
  for (const Collective collective : options.collectives) {
    const std::span<const std::size_t> sizes(all_sizes.data(),
                                             collective == Collective::barrier ? 1 : all_sizes.size());
    if (options.tune) {
      const CutOffs table = tuned_table(bench, collective, sizes, fabric);
      if (fabric.rank() == 0) put_tuned_cut_offs(tuned, collective, fabric.name(), fabric.size(), table);
      bench.use(collective, table);
    }
    for (const std::size_t bytes : sizes) {
      measure_size(bench, options, fabric, collective, bytes, report);
      if (collective == Collective::all_reduce) bench.check_all_reduce(bytes);
    }
    keep(report);
  }
  if (!fabric.has(Capability::vendor_collectives)) return;
  measure_windows(bench, report);
  keep(report);
}

std::size_t heap_bytes(const CollectiveBenchOptions& options) {
  const Device device{options.fabric.starts_with("nvlink") ? DeviceKind::cuda : DeviceKind::cpu};
  const bool symmetric =
      options.memory.value_or(device.kind == DeviceKind::cuda ? Memory::symmetric : Memory::any) == Memory::symmetric;
  const int ranks = started_by_mpirun() ? read_launch().world_size : options.ranks;
  return Communicator::heap_bytes(ranks, device, workspace_options(options, device.kind)) +
         (symmetric ? 2 * CollectiveBuffers::region_bytes(device, rounded_size(options.to_bytes, ranks)) : 0);
}

// The record of a run, including a partial one.
class CollectiveRecord {
 public:
  explicit CollectiveRecord(const CollectiveBenchOptions& options)
      : options_(options), record_(bench_record("collective", {})) {
    for (const char* field : {"model", "threads", "dtype", "compute"}) record_.erase(field);
    // Opened now, so that an unwritable file is reported before minutes of measuring.
    if (to_file()) PendingFile{*options.json_file};
  }

  // Also writes the file, so that an interrupted run keeps its measurements.
  void take(const CollectiveReport& report) {
    record_["fabric"] = report.fabric;
    record_["ranks"] = report.ranks;
    record_["dtype"] = name_of(options_.dtype);
    if (on_gpus()) record_["cache"] = options_.cache == Cache::cold ? "cold" : "hot";
    record_["cases"] = report.cases;
    record_["machine"]["clock_mhz_after"] = clock_mhz();
    rows_ = report.rows;
    if (to_file()) write_file(*options_.json_file, text());
  }

  bool empty() const { return rows_.empty(); }

  // For standard output: the table, or JSON if requested.
  std::string shown() const {
    if (options_.json_file && options_.json_file->empty()) return text();
    std::vector<std::vector<std::string>> rows = rows_;
    std::vector<std::string> head{"collective", "size",   "algorithm", on_gpus() ? "SMs" : "blocks",
                                  "us",         "skew %", "bus GB/s"};
    if (on_gpus())
      for (const char* more : {"% of roofline", "predicted us", "NCCL us", "NCCL SMs", "windows us", "ratio"})
        head.emplace_back(more);
    rows.insert(rows.begin(), head);
    return table_text(rows);
  }

 private:
  bool on_gpus() const { return options_.fabric.starts_with("nvlink"); }
  bool to_file() const { return options_.json_file && !options_.json_file->empty(); }
  std::string text() const { return record_.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n"; }

  const CollectiveBenchOptions& options_;
  ordered_json record_;
  std::vector<std::vector<std::string>> rows_;
};

void run_bench(const CollectiveBenchOptions& options) {
  CollectiveRecord record(options);
  TunedStore tuned(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  run_ranks(options.fabric, options.ranks, {.heap_bytes = heap_bytes(options)}, [&](Fabric& fabric, Stream& stream) {
    bench_rank(options, fabric, stream, tuned, [&](const CollectiveReport& report) {
      if (fabric.rank() == 0) record.take(report);
    });
  });
  if (!record.empty()) write_stdout(record.shown());  // empty on ranks other than 0, in processes of their own
}

// "4K", "16M", "1000": bytes.
std::size_t parse_size(const std::string& name, const std::string& text) {
  std::size_t value = 0;
  const char* const last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, value);
  const int shift = end + 1 == last ? (*end == 'K'   ? 10
                                       : *end == 'M' ? 20
                                       : *end == 'G' ? 30
                                                     : -1)
                    : end == last   ? 0
                                    : -1;
  constexpr std::size_t kMost = std::size_t{4} << 30;
  if (error != std::errc() || shift < 0 || value == 0 || value > kMost >> shift)
    throw CLI::ValidationError(
        name, fmt::format("is \"{}\", expected bytes from 1 to 4G, such as 64K", printable_text(text)));
  return value << shift;
}

template <class T, class Named>
T parse_name(const std::string& option, const std::string& text, const Named& named, std::string_view examples) {
  if (const auto value = named(text)) return *value;
  throw CLI::ValidationError(option, fmt::format("is \"{}\", expected {}", printable_text(text), examples));
}

std::vector<Collective> parse_collectives(const std::string& text) {
  std::vector<Collective> all;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    all.push_back(parse_name<Collective>("--collective", text.substr(begin, end - begin), collective_named,
                                         "names such as all_reduce,all_gather"));
    begin = end + 1;
  }
  return all;
}

}  // namespace

void add_collective_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<CollectiveBenchOptions>();
  CLI::App* command = bench.add_subcommand("collective", "Collectives on the ranks of a fabric, by size");
  command->add_option("--fabric", options->fabric, "shm, mpi or nvlink; default shm");
  add_number_option<int>(*command, "--ranks", options->ranks, "Threads or GPUs, where mpirun starts none; default 2",
                         {.min = 1, .max = kMaxPeers});
  command->add_option_function<std::string>(
      "--collective", [options](const std::string& text) { options->collectives = parse_collectives(text); },
      "Names, comma-separated; default: all but barrier");
  const auto add_size = [&](const std::string& name, std::size_t& target, const std::string& description) {
    command->add_option_function<std::string>(
        name, [&target, name](const std::string& text) { target = parse_size(name, text); }, description);
  };
  add_size("--from", options->from_bytes, "Smallest size, of a rank's larger buffer; default 1K");
  add_size("--to", options->to_bytes, "Largest; default 256M");
  add_size("--pipeline-bytes", options->pipeline_bytes, "Bytes of the slots that pipelined calls move chunks through");
  add_number_option<int>(*command, "--factor", options->factor, "From one size to the next; default 4",
                         {.min = 2, .max = 1024});
  command->add_option_function<std::string>(
      "--dtype",
      [options](const std::string& text) {
        options->dtype = parse_name<DType>("--dtype", text, dtype_named, "float32, bfloat16 or float16");
      },
      "Default float32");
  add_number_option<int>(*command, "--repeats", options->repeats, "Samples of each case; default 20",
                         {.min = 1, .max = 10000});
  const auto forced = std::make_shared<Choice>();
  CLI::Option* algorithm = command->add_option_function<std::string>(
      "--algorithm",
      [options, forced](const std::string& text) {
        forced->algorithm = parse_name<Algorithm>("--algorithm", text, algorithm_named,
                                                  "low_latency, two_phase, direct, pipelined, vendor or put");
        options->forced = *forced;
      },
      "One for all sizes; default: by the tables");
  add_number_option<int>(*command, "--blocks", forced->blocks, "With --algorithm, on a GPU",
                         {.min = 1, .max = kMaxBlocks})
      ->needs(algorithm);
  add_number_option<int>(*command, "--block-threads", forced->threads, "With --algorithm, on a GPU; default 512",
                         {.min = 32, .max = 512})
      ->needs(algorithm);
  command->add_option_function<std::string>(
      "--cache",
      [options](const std::string& text) {
        if (text != "cold" && text != "hot")
          throw CLI::ValidationError("--cache", fmt::format("is \"{}\", expected cold or hot", printable_text(text)));
        options->cache = text == "cold" ? Cache::cold : Cache::hot;
      },
      "On GPUs, whether the buffers lie in the cache: cold or hot; default cold");
  command->add_option_function<std::string>(
      "--memory",
      [options](const std::string& text) {
        if (text != "any" && text != "symmetric")
          throw CLI::ValidationError("--memory",
                                     fmt::format("is \"{}\", expected any or symmetric", printable_text(text)));
        options->memory = text == "any" ? Memory::any : Memory::symmetric;
      },
      "any or symmetric; default: symmetric on GPUs, any on the CPU");
  command->add_flag("--register-heap", options->register_heap, "On GPUs: NCCL gets to know the symmetric heap, too");
  command->add_flag("--tune", options->tune, "Measure all algorithms first, and keep the best for this machine");
  add_json_option(*command, options->json_file);
  command->callback([options, forced] {
    if (options->forced) {
      options->forced->blocks = forced->blocks;
      options->forced->threads = forced->threads / 32 * 32;  // whole warps
    }
    if (options->to_bytes < options->from_bytes) throw CLI::ValidationError("--to", "is smaller than --from");
    run_bench(*options);
  });
}

}  // namespace heddle
