#include "cli/bench/sequence_attention.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/bench/bench.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "fabric/run_ranks.h"
#include "parallel/sequence/plan.h"
#include "parallel/sequence/sequence_attention.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct SequenceBenchOptions {
  int figure = 0;
  std::string fabric = "shm";
  std::optional<int> machines, gpus;  // of the measured ranks
  int tokens = 512, heads = 8, head_dim = 64, repeats = 5;
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
  std::optional<double> exposed_seconds;  // predicted
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
  SequenceRequest request(const SequenceWorkload& workload, const Placement& placement, int batch,
                          std::optional<int> degree) const {
    SequenceRequest result{.placement = placement,
                           .num_heads = workload.num_heads,
                           .head_dim = workload.head_dim,
                           .num_tokens = workload.num_tokens,
                           .batch = batch,
                           .degree = degree,
                           .rates = {}};
    result.rates.attention_flops = options_.tflops * 1e12;
    result.rates.machine_link_bytes = options_.machine_gbps * 1e9;
    result.rates.gpu_link_bytes = options_.gpu_gbps * 1e9;
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
  };
  const SequenceShape shape =
      even_sequence({.num_heads = options_.heads, .head_dim = options_.head_dim}, options_.tokens, placement.size());
  std::vector<Layer> layers;
  std::size_t heap_bytes = 0;
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    if (!why_not(strategy, placement, options_.heads).empty()) continue;
    const SequenceMesh mesh = make_sequence_mesh(strategy, placement, options_.heads);
    const SequenceMemory memory(mesh, shape);
    heap_bytes = std::max(heap_bytes, SequenceAttention::heap_bytes(memory));
    layers.push_back(
        {strategy, mesh, count_sequence_programs(memory, make_sequence_programs(strategy, memory)).largest});
  }
  const std::string name = fmt::format("{} tokens, {} x {}", options_.tokens, options_.heads, options_.head_dim);
  const FabricOptions fabric_options{.heap_bytes = heap_bytes, .deadline = std::chrono::seconds(60)};
  is_first_rank_ = false;
  run_ranks(options_.fabric, placement.size(), fabric_options, [&](Fabric& fabric, Stream& stream) {
    if (fabric.size() != placement.size())
      throw_error<InputError>("bench sequence-attention: {} x {} are {} ranks, and there are {}", placement.machines,
                              placement.ranks_per_machine, placement.size(), fabric.size());
    for (const Layer& layer : layers) {
      const std::vector<double> samples = time_layer(fabric, stream, layer.strategy, layer.mesh, shape);
      if (fabric.rank() != 0) continue;
      is_first_rank_ = true;
      rows_.push_back({name, placement, layer.strategy, layer.mesh, true, median(samples), {}, layer.counted_elements});
    }
  });
}

std::vector<double> FigureTable::time_layer(Fabric& fabric, Stream& stream, SequenceStrategy strategy,
                                            const SequenceMesh& mesh, const SequenceShape& shape) const {
  std::vector<int> team(static_cast<std::size_t>(fabric.size()));
  std::iota(team.begin(), team.end(), 0);
  SequenceAttention layer(fabric, team, strategy, mesh, shape);
  const auto elements = static_cast<std::size_t>(shape.tokens[static_cast<std::size_t>(fabric.rank())]) *
                        static_cast<std::size_t>(options_.heads * options_.head_dim);
  std::vector<float> x(elements + 1), y(elements + 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  const float scale = 1 / std::sqrt(static_cast<float>(options_.head_dim));
  std::vector<double> samples;
  for (int sample = -1; sample < options_.repeats; ++sample) {  // one to warm up
    fabric.barrier(stream);
    fabric.synchronize(stream);
    const auto begin = std::chrono::steady_clock::now();
    layer.attend(x.data(), x.data(), x.data(), y.data(), scale, stream);
    layer.synchronize(stream);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (sample >= 0) samples.push_back(taken.count());
  }
  return samples;
}

// Attention over pieces against one piece (figure 12): what pieces and the carry cost on this CPU, on one thread.
std::vector<std::pair<std::string, double>> measure_pieces(const SequenceBenchOptions& options) {
  const int tokens = options.tokens, heads = options.heads, head_dim = options.head_dim;
  const auto elements = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads * head_dim);
  const auto rows = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(heads);
  std::vector<float> x(elements), y(elements), state(elements + 2 * rows);
  for (std::size_t i = 0; i < elements; ++i) x[i] = std::sin(static_cast<float>(i));
  const PieceShape shape{1, heads, heads, head_dim, DType::float32};
  const PieceStrides strides = token_major(heads, tokens, head_dim);
  const QueryPiece queries{
      x.data(), strides, y.data(), strides, state.data(), state.data() + elements, state.data() + elements + rows,
      tokens,   0};
  const auto pieces = [&](int count, int from, int to) {
    std::vector<KeyValuePiece> result;
    for (int i = from; i < to; ++i) {
      const int first = tokens * i / count, end = tokens * (i + 1) / count;
      const float* const at = x.data() + first * strides.token;
      result.push_back({at, at, strides, end - first, first});
    }
    return PieceLayout(shape, {queries}, std::move(result));
  };
  ThreadPool pool(1);
  Stream stream(pool);
  const auto time = [&](const std::vector<PieceLayout>& calls) {
    std::vector<double> samples;
    for (int sample = -1; sample < options.repeats; ++sample) {
      const auto begin = std::chrono::steady_clock::now();
      for (std::size_t i = 0; i < calls.size(); ++i)
        piece_attention({.layout = &calls[i],
                         .scale = 1 / std::sqrt(static_cast<float>(head_dim)),
                         .start = i == 0 ? PieceStart::fresh : PieceStart::carried,
                         .end = i + 1 == calls.size() ? PieceEnd::finalise : PieceEnd::carry},
                        stream);
      stream.synchronize();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (sample >= 0) samples.push_back(taken.count());
    }
    return median(samples);
  };
  std::vector<std::pair<std::string, double>> result{{"1 piece, 1 call", time({pieces(1, 0, 1)})}};
  for (const int count : {2, 4, 8}) {
    result.emplace_back(fmt::format("{} pieces, 1 call", count), time({pieces(count, 0, count)}));
    std::vector<PieceLayout> calls;
    calls.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) calls.push_back(pieces(count, i, i + 1));
    result.emplace_back(fmt::format("{0} pieces, {0} calls", count), time(calls));
  }
  return result;
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
  if (options.figure == 12) {
    cells.push_back({"keys and values", "ms", "to 1 piece"});
    const auto measured = measure_pieces(options);
    for (const auto& [name, seconds] : measured) {
      const double ratio = seconds / measured.front().second;
      cells.push_back({name, fmt::format("{:.3f}", seconds * 1e3), fmt::format("{:.3f}", ratio)});
      rows.push_back({{"case", name}, {"source", "measured"}, {"seconds", seconds}, {"to_one_piece", ratio}});
    }
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
  record["rates"] = {{"attention_tflops", options.tflops},
                     {"machine_link_gbps", options.machine_gbps},
                     {"gpu_link_gbps", options.gpu_gbps}};
  record["rows"] = std::move(rows);
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  write_stdout(options.json_file && !to_file ? text : table_text(cells));
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
  command->add_option("--fabric", options->fabric, "Of measured ranks: shm or mpi; default shm");
  add_number_option<int>(*command, "--machines", options->machines,
                         "Also measure, on ranks that stand for as many machines", {.min = 1, .max = kMaxPeers});
  add_number_option<int>(*command, "--gpus", options->gpus, "and as many ranks on each", {.min = 1, .max = kMaxPeers});
  add_number_option<int>(*command, "--tokens", options->tokens, "Tokens of a measured layer; default 512",
                         {.min = 1, .max = 1 << 20});
  add_number_option<int>(*command, "--heads", options->heads, "Its heads; default 8", {.min = 1, .max = 1024});
  add_number_option<int>(*command, "--head-dim", options->head_dim, "Elements of a head; default 64",
                         {.min = 1, .max = 256});
  add_number_option<int>(*command, "--repeats", options->repeats, "Samples; default 5", {.min = 1, .max = 10000});
  const NumberRange<double> rate{.min = 1e-6, .max = 1e9};
  add_number_option<double>(*command, "--tflops", options->tflops, "Predicted: TFLOP/s of a GPU; default 200", rate);
  add_number_option<double>(*command, "--machine-gbps", options->machine_gbps,
                            "Predicted: GB/s out of a machine; default 50", rate);
  add_number_option<double>(*command, "--gpu-gbps", options->gpu_gbps, "Predicted: GB/s between GPUs; default 250",
                            rate);
  add_json_option(*command, options->json_file);
  command->callback([options] {
    if (options->machines.value_or(1) * options->gpus.value_or(1) > kMaxPeers)
      throw_error<InputError>("bench sequence-attention: {} x {} are more than {} ranks", options->machines.value_or(1),
                              options->gpus.value_or(1), kMaxPeers);
    run_sequence_bench(*options);
  });
}

}  // namespace heddle
