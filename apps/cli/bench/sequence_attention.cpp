#include "cli/bench/sequence_attention.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/bench/bench.h"
#include "cli/bench/record.h"
#include "cli/bench/sequence_pieces.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "fabric/discover_placement.h"
#include "fabric/launch.h"
#include "fabric/run_ranks.h"
#include "machine/device_choice.h"
#include "parallel/sequence/plan.h"
#include "parallel/sequence/sequence_attention.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct SequenceBenchOptions {
  int figure = 0;
  std::string fabric = "shm";
  std::optional<int> machines, gpus;           // of the measured ranks
  std::optional<int> tokens, heads, head_dim;  // of a measured layer
  int repeats = 5;
  Device device;
  std::string peer;  // of figure 12
  bool timed_waits = false;
  double local_us = 5, remote_us = 15;
  double machine_gbps = 50, gpu_gbps = 250, tflops = 200;
  std::optional<std::string> json_file;
};

// An attention layer that the paper times whole sampling steps of. Tokens include the text's: 512 of Flux, 226 of
// CogVideoX. The paper's CogVideoX has 24 heads.
struct SequenceWorkload {
  const char* name;
  int num_heads, head_dim;
  std::int64_t num_tokens;
};
constexpr SequenceWorkload kSequenceWorkloads[] = {{"flux 3072", 24, 128, 36864 + 512},
                                                   {"flux 4096", 24, 128, 65536 + 512},
                                                   {"cogvideox 20 s", 24, 64, 167280 + 226},
                                                   {"cogvideox 40 s", 24, 64, 330480 + 226}};
constexpr SequenceStrategy kCompared[] = {SequenceStrategy::usp, SequenceStrategy::tas, SequenceStrategy::torus,
                                          SequenceStrategy::one_sided};

struct FigureRow {
  std::string workload;
  Placement placement;
  SequenceStrategy strategy;
  SequenceMesh mesh;
  bool measured;
  double seconds;
  std::optional<double> exposed_seconds;  // not where computation was measured, too
  std::int64_t counted_elements;
};

class FigureTable {
 public:
  explicit FigureTable(const SequenceBenchOptions& options) : options_(options) {}

  void predict(const std::string& name, const SequenceWorkload& workload, const Placement& placement, int batch,
               std::optional<int> degree) {
    const SequencePlan plan = plan_sequence_attention(request(workload, placement, batch, degree));
    for (const SequenceStrategy strategy : kCompared) add(name, placement, plan.of(strategy));
  }

  // Each strategy with the degree that serves it best, as in figure 7.
  void predict_best(const SequenceWorkload& workload, const Placement& placement) {
    std::vector<SequencePlan> plans;
    for (int degree = 1; degree <= placement.size(); ++degree)
      if (placement.size() % degree == 0 && workload.num_heads % degree == 0)
        plans.push_back(plan_sequence_attention(request(workload, placement, 1, degree)));
    for (const SequenceStrategy strategy : kCompared) {
      const auto seconds = [&](const SequencePlan& plan) { return plan.of(strategy).timeline.seconds; };
      const auto best = std::ranges::min_element(plans, {}, seconds);
      add(workload.name, placement, best->of(strategy));
    }
  }

  void measure(const Placement& placement);

  const std::vector<FigureRow>& rows() const { return rows_; }
  // Whether this process has rank 0, if ranks were measured. Others print nothing.
  bool is_first_rank() const { return is_first_rank_; }

 private:
  SequenceRates rates() const {
    SequenceRates result;
    result.attention_flops = options_.tflops * 1e12;
    result.machine_link_bytes = options_.machine_gbps * 1e9;
    result.gpu_link_bytes = options_.gpu_gbps * 1e9;
    result.local_seconds = options_.local_us * 1e-6;
    result.remote_seconds = options_.remote_us * 1e-6;
    return result;
  }
  SequenceRequest request(const SequenceWorkload& workload, const Placement& placement, int batch,
                          std::optional<int> degree) const {
    SequenceRequest result{.placement = placement,
                           .num_heads = workload.num_heads,
                           .head_dim = workload.head_dim,
                           .num_tokens = workload.num_tokens,
                           .batch = batch,
                           .degree = degree,
                           .rates = rates()};
    return result;
  }
  void add(const std::string& name, const Placement& placement, const SequenceForecast& of) {
    rows_.push_back({name, placement, of.strategy, of.mesh, false, of.timeline.seconds, of.timeline.exposed_seconds,
                     of.counted_elements});
  }

  std::vector<double> time_layer(Fabric& fabric, Stream& stream, SequenceStrategy strategy, const SequenceMesh& mesh,
                                 const SequenceShape& shape) const;

  const SequenceBenchOptions& options_;
  std::vector<FigureRow> rows_;
  bool is_first_rank_ = true;
};

// One layer under each strategy that fits, on ranks of this machine or of the machines that mpirun spans; the time of rank
// 0 from barrier to barrier.
void FigureTable::measure(const Placement& placement) {
  struct Layer {
    SequenceStrategy strategy;
    SequenceMesh mesh;
    std::int64_t counted_elements;
    SequenceTimeline timeline;
  };
  const int heads = options_.heads.value_or(8), head_dim = options_.head_dim.value_or(64);
  const int tokens = options_.tokens.value_or(512);
  // Where computation is replaced by waits, bytes are those of GPUs.
  const bool is_narrow = options_.timed_waits || options_.fabric.starts_with("nvlink");
  const DType dtype = is_narrow ? DType::bfloat16 : DType::float32;
  const SequenceShape shape =
      even_sequence({.num_heads = heads, .head_dim = head_dim, .dtype = dtype}, tokens, placement.size());
  std::vector<Layer> layers;
  std::size_t heap_bytes = 0;
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    if (!why_not(strategy, placement, heads).empty()) continue;
    const SequenceMesh mesh = make_sequence_mesh(strategy, placement, heads);
    const SequenceMemory memory(mesh, shape);
    heap_bytes = std::max(heap_bytes, SequenceAttention::heap_bytes(memory));
    const std::vector<SequenceProgram> programs = make_sequence_programs(strategy, memory);
    layers.push_back({strategy, mesh, count_sequence_programs(memory, programs).largest,
                      predict_sequence(memory, programs, rates())});
  }
  const std::string name = fmt::format("{} tokens, {} x {}", tokens, heads, head_dim);
  const FabricOptions fabric_options{.heap_bytes = heap_bytes, .deadline = std::chrono::seconds(60)};
  is_first_rank_ = false;
  run_ranks(options_.fabric, placement.size(), fabric_options, [&](Fabric& fabric, Stream& stream) {
    if (started_by_mpirun()) {
      const Placement found = discover_placement(fabric, stream, read_launch());
      if (found.machines > 1 && found != placement)
        throw_error<InputError>(
            "bench sequence-attention: --machines {} --gpus {}, and the run is {} machines of {} ranks",
            placement.machines, placement.ranks_per_machine, found.machines, found.ranks_per_machine);
    }
    if (fabric.size() != placement.size())
      throw_error<InputError>("bench sequence-attention: {} x {} are {} ranks, and there are {}", placement.machines,
                              placement.ranks_per_machine, placement.size(), fabric.size());
    for (const Layer& layer : layers) {
      const std::vector<double> samples = time_layer(fabric, stream, layer.strategy, layer.mesh, shape);
      if (fabric.rank() != 0) continue;
      is_first_rank_ = true;
      FigureRow row{name,
                    placement,
                    layer.strategy,
                    layer.mesh,
                    false,
                    layer.timeline.seconds,
                    layer.timeline.exposed_seconds,
                    layer.counted_elements};
      if (options_.timed_waits) rows_.push_back(row);
      row.measured = true;
      row.seconds = median(samples);
      row.exposed_seconds.reset();
      if (options_.timed_waits) row.exposed_seconds = row.seconds - layer.timeline.compute_seconds;
      rows_.push_back(row);
    }
  });
}

std::vector<double> FigureTable::time_layer(Fabric& fabric, Stream& stream, SequenceStrategy strategy,
                                            const SequenceMesh& mesh, const SequenceShape& shape) const {
  std::vector<int> team(static_cast<std::size_t>(fabric.size()));
  std::iota(team.begin(), team.end(), 0);
  SequenceAttention layer(fabric, team, strategy, mesh, shape);
  if (options_.timed_waits) layer.replace_computation(rates());
  const auto elements = static_cast<std::size_t>(shape.tokens[static_cast<std::size_t>(fabric.rank())]) *
                        static_cast<std::size_t>(shape.num_heads * shape.head_dim);
  std::vector<float> numbers(elements + 1);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<float>(i));
  std::vector<std::byte> rounded(numbers.size() * size_of(shape.dtype));
  convert(numbers.data(), DType::float32, rounded.data(), shape.dtype, numbers.size());
  Buffer x(rounded.size(), fabric.device()), y(rounded.size(), fabric.device());
  enqueue_copy(stream, x.data(), rounded.data(), rounded.size());
  stream.synchronize();
  const DeviceShare share = fabric.device_share();
  const Lane lane = share.ranks > 1 ? Lane(stream, share.sms) : Lane(stream);
  const float scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  std::vector<double> samples;
  for (int sample = -1; sample < options_.repeats; ++sample) {  // one to warm up
    fabric.barrier(stream);
    fabric.synchronize(stream);
    const auto begin = std::chrono::steady_clock::now();
    layer.attend(x.data(), x.data(), x.data(), y.data(), scale, lane);
    layer.synchronize(stream);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (sample >= 0) samples.push_back(taken.count());
  }
  return samples;
}

void fill(FigureTable& table, const SequenceBenchOptions& options) {
  switch (options.figure) {
    case 7:
      for (const SequenceWorkload& workload : kSequenceWorkloads)
        for (const int machines : {2, 3, 4}) table.predict_best(workload, {machines, 8});
      break;
    case 8:
      for (const SequenceWorkload& workload : kSequenceWorkloads)
        for (const int machines : {3, 4})
          for (int degree = 1; degree <= 24; ++degree)
            if (24 % degree == 0 && machines * 8 % degree == 0)
              table.predict(workload.name, workload, {machines, 8}, 1, degree);
      break;
    case 9:
      for (const int head_dim : {32, 64, 128}) {
        for (const int thousands : {96, 128, 160, 192})
          table.predict(fmt::format("D {}, {}k tokens", head_dim, thousands),
                        {"", 24, head_dim, std::int64_t{1024} * thousands}, {4, 8}, 1, {});
        for (const int batch : {2, 4})
          table.predict(fmt::format("D {}, 96k tokens, batch {}", head_dim, batch),
                        {"", 24, head_dim, std::int64_t{1024} * 96}, {4, 8}, batch, {});
      }
      break;
    case 10:
      for (const SequenceWorkload& workload : kSequenceWorkloads) table.predict(workload.name, workload, {4, 8}, 1, {});
      break;
    default:
      break;
  }
  if (!options.machines && !options.gpus) return;
  table.measure({options.machines.value_or(1), options.gpus.value_or(1)});
}

void run_sequence_bench(const SequenceBenchOptions& options) {
  ordered_json record = bench_record("sequence-attention", {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  record["figure"] = options.figure;
  record["of"] = "attention layers; the paper times whole sampling steps";
  const bool to_file = options.json_file && !options.json_file->empty();
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  std::vector<std::vector<std::string>> cells;
  ordered_json rows = ordered_json::array();
  std::string wrong;
  if (options.figure == 12) {
    PieceBench pieces = bench_pieces({.device = options.device,
                                      .tokens = options.tokens ? std::vector<int>{*options.tokens} : std::vector<int>{},
                                      .head_dim = options.head_dim,
                                      .heads = options.heads,
                                      .repeats = options.repeats,
                                      .compare = !options.peer.empty()});
    cells = std::move(pieces.cells);
    wrong = std::move(pieces.wrong);
    rows = std::move(pieces.fields["rows"]);
    pieces.fields.erase("rows");
    record.update(pieces.fields);
  } else {
    FigureTable table(options);
    fill(table, options);
    if (!table.is_first_rank()) return;
    cells.push_back({"layer", "machines", "strategy", "U x R", "source", "ms", "exposed ms", "to usp", "elements"});
    double usp = 0;
    for (const FigureRow& row : table.rows()) {
      if (row.strategy == SequenceStrategy::usp) usp = row.seconds;
      const bool before_usp = row.strategy == SequenceStrategy::ulysses || row.strategy == SequenceStrategy::ring;
      const char* const source = row.measured ? "measured" : "predicted";
      const std::string speedup = before_usp || usp == 0 ? "-" : fmt::format("{:.2f}x", usp / row.seconds);
      cells.push_back({row.workload, fmt::format("{} x {}", row.placement.machines, row.placement.ranks_per_machine),
                       std::string(name_of(row.strategy)), fmt::format("{} x {}", row.mesh.groups(), row.mesh.ring),
                       source, fmt::format("{:.3f}", row.seconds * 1e3),
                       row.exposed_seconds ? fmt::format("{:.3f}", *row.exposed_seconds * 1e3) : "-", speedup,
                       fmt::format("{}", row.counted_elements)});
      ordered_json object{{"layer", row.workload},
                          {"machines", row.placement.machines},
                          {"gpus", row.placement.ranks_per_machine},
                          {"strategy", name_of(row.strategy)},
                          {"ulysses", row.mesh.groups()},
                          {"ring", row.mesh.ring},
                          {"source", source},
                          {"seconds", row.seconds},
                          {"counted_elements", row.counted_elements}};
      if (row.exposed_seconds) object["exposed_seconds"] = *row.exposed_seconds;
      rows.push_back(std::move(object));
    }
  }
  if (options.figure != 12)
    record["rates"] = {{"attention_tflops", options.tflops},
                       {"machine_link_gbps", options.machine_gbps},
                       {"gpu_link_gbps", options.gpu_gbps}};
  record["rows"] = std::move(rows);
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  write_stdout(options.json_file && !to_file ? text : table_text(cells));
  if (!wrong.empty()) throw_error<Failure>("{}: these values are wrong, nothing of their time counts", wrong);
}

}  // namespace

void add_sequence_attention_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<SequenceBenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "sequence-attention",
      "Figures of StreamFusion for attention layers: predicted for machines of 8 GPUs, or measured");
  command
      ->add_option_function<std::string>(
          "--figure",
          [options](const std::string& text) {
            for (const int figure : {7, 8, 9, 10, 12})
              if (text == std::to_string(figure)) options->figure = figure;
            if (options->figure == 0)
              throw CLI::ValidationError("--figure",
                                         fmt::format("is \"{}\", expected 7, 8, 9, 10 or 12", printable_text(text)));
          },
          "7 best degrees, 8 degrees, 9 head dimension, length and batch, 10 what each idea adds, 12 the kernel's "
          "pieces")
      ->type_name("N")
      ->required();
  command->add_option("--fabric", options->fabric,
                      "Of measured ranks: shm, mpi, nvlink or nvlink-ipc (ranks that share a GPU); default shm");
  add_number_option<int>(*command, "--machines", options->machines,
                         "Also measure, on ranks that stand for as many machines", {.min = 1, .max = kMaxPeers});
  add_number_option<int>(*command, "--gpus", options->gpus, "and as many ranks on each", {.min = 1, .max = kMaxPeers});
  add_number_option<int>(*command, "--tokens", options->tokens,
                         "Tokens of a measured layer; default 512, figure 12 on a GPU 4096 to 167504",
                         {.min = 1, .max = 1 << 20});
  add_number_option<int>(*command, "--heads", options->heads, "Its heads; default 8, figure 12 on a GPU 24",
                         {.min = 1, .max = 1024});
  add_number_option<int>(*command, "--head-dim", options->head_dim,
                         "Elements of a head; default 64, figure 12 on a GPU 64 and 128", {.min = 1, .max = 256});
  command
      ->add_option_function<std::string>(
          "--device",
          [options](const std::string& name) {
            const std::vector<Device> devices = devices_named(name);
            if (devices.size() != 1)
              throw CLI::ValidationError("--device",
                                         fmt::format("is \"{}\", expected cpu, cuda or cuda:N", printable_text(name)));
            options->device = devices.front();
          },
          "Of figure 12; default cpu")
      ->type_name("DEVICE");
  command->add_option("--compare", options->peer, "Figure 12 beside the fastest attention of PyTorch: torch")
      ->type_name("NAME");
  add_number_option<int>(*command, "--repeats", options->repeats, "Samples; default 5", {.min = 1, .max = 10000});
  const NumberRange<double> rate{.min = 1e-6, .max = 1e9};
  add_number_option<double>(*command, "--tflops", options->tflops, "Predicted: TFLOP/s of a GPU; default 200", rate);
  add_number_option<double>(*command, "--machine-gbps", options->machine_gbps,
                            "Predicted: GB/s out of a machine; default 50", rate);
  add_number_option<double>(*command, "--gpu-gbps", options->gpu_gbps, "Predicted: GB/s between GPUs; default 250",
                            rate);
  add_number_option<double>(*command, "--local-us", options->local_us,
                            "Predicted: microseconds of a message inside a machine; default 5", rate);
  add_number_option<double>(*command, "--remote-us", options->remote_us,
                            "Predicted: microseconds of one between machines; default 15", rate);
  command->add_flag("--timed-waits", options->timed_waits,
                    "Measured on CPU ranks: computation is replaced by waits as long as --tflops predicts");
  add_json_option(*command, options->json_file);
  command->callback([options] {
    if (options->machines.value_or(1) * options->gpus.value_or(1) > kMaxPeers)
      throw_error<InputError>("bench sequence-attention: {} x {} are more than {} ranks", options->machines.value_or(1),
                              options->gpus.value_or(1), kMaxPeers);
    const bool is_one_device = options->figure == 12;
    if (!is_one_device && (options->device.kind != DeviceKind::cpu || !options->peer.empty()))
      throw_error<InputError>(
          "bench sequence-attention: --device and --compare are for figure 12; ranks have --fabric");
    if (options->timed_waits && (is_one_device || (!options->machines && !options->gpus)))
      throw_error<InputError>(
          "bench sequence-attention: --timed-waits needs --machines and --gpus, and figure 7 to 10");
    if (!options->peer.empty() && options->peer != "torch")
      throw_error<InputError>("bench sequence-attention: --compare {}, expected torch", options->peer);
    run_sequence_bench(*options);
  });
}

}  // namespace heddle
