// heddle tune all-gather-linear: how a GEMM gets the rows of all ranks fastest, measured and kept in the tuned store.
#include "cli/tune_gather.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/bench/fused_gather.h"
#include "cli/bench/record.h"
#include "cli/launched.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/tuned_gathers.h"
#include "fused/all_gather_linear/all_gather_linear_sm90.h"
#include "machine/collective_cost.h"
#include "machine/cpu.h"
#include "machine/fused_cost.h"
#include "machine/gpu.h"
#include "machine/machine.h"
#include "machine/measure.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;
using Form = GatherChoice::Form;

struct GatherTuneOptions : FusedBenchOptions {
  std::string model;  // empty: n and k
  std::optional<std::int64_t> n, k;
  DType dtype = DType::float32;  // of n and k
  std::optional<DType> model_dtype;
  std::vector<int> tokens{16, 64, 256, 1024, 4096};
};

// What this machine gives each of the ranks. On GPUs the rates of an H200 by SM, and the data sheet's of memory.
struct Machine {
  RankRates rates;
  int sms = 0;  // of a GPU
};

Machine machine_of_cpu_ranks(TunedStore& store, int ranks) {
  const int usable = std::max(1, discover_cpu().usable_threads), threads = std::min(ranks, usable);
  const double memory = memory_bandwidth_gbps(store, threads) * 1e9 / ranks;
  return {{.flops_per_second = measure_float32_rate({.threads = threads}) * 1e9 / ranks,
           .memory_bytes_per_second = memory,
           .link_bytes_per_second = memory / 2,  // a copy reads and writes
           .overlaps = usable >= 2 * ranks}};    // a rank has a thread that computes and one that transfers
}

Machine machine_of_gpu_ranks(const std::vector<Device>& devices) {
  const GpuInfo gpu = discover_gpus().gpus.at(static_cast<std::size_t>(devices.front().index));
  const auto sharing = static_cast<int>(std::ranges::count(devices, devices.front()));
  const double memory = gpu.memory_bandwidth_gbps * 1e9 / sharing;
  return {{.flops_per_second = h200::kGemmFlopsPerSm * gpu.num_sms / sharing,
           .memory_bytes_per_second = memory,
           .link_bytes_per_second = sharing > 1 ? memory / 2 : kH200PairBytesPerSecond,
           .overlaps = true},
          gpu.num_sms / sharing};
}

double best_efficiency(const FusedShape& shape, const GatherChoice& choice, double columns, int sms) {
  constexpr const GatherTile& kFull = kGatherTiles[0];
  double best = 0;
  for (int i = 0; i < std::ssize(kGatherTiles); ++i) {
    if (choice.tile >= 0 && choice.tile != i) continue;
    const GatherTile& tile = kGatherTiles[i];
    best = std::max(best, tile_efficiency(static_cast<double>(shape.m), columns, tile.rows, tile.columns, sms,
                                          tile.round, kFull.rows * kFull.columns));
  }
  return best;
}

// fused_cost.h, for the rank with the most columns.
double predicted_microseconds(const FusedShape& shape, const GatherChoice& choice, int ranks, const Machine& machine) {
  const auto m = static_cast<double>(shape.m), k = static_cast<double>(shape.k),
             columns = static_cast<double>(ceil_div(shape.n, std::int64_t{ranks})),
             element = static_cast<double>(size_of(shape.dtype));
  const Shards shards = Shards::even(shape.m, ranks);
  const std::int64_t tile_rows = AllGatherLinearLimits{}.tile_rows;
  const double all = m * k * element;
  GatherWork work{.flops = 2 * m * columns * k,
                  .memory_bytes = all + columns * k * element + m * columns * sizeof(float),
                  .transfer_bytes = exchange_traffic(ranks, all),
                  .tiles = static_cast<double>(ranks * ceil_div(shards.largest(), tile_rows))};
  if (choice.form == Form::bsp) return 1e6 * sequential_seconds(work, machine.rates);
  if (shape.device == DeviceKind::cpu) {
    // Pull copies a rank's own shard alone, once; the GEMM reads the others' where they are.
    if (choice.form == Form::pull) work.transfer_bytes = all / ranks;
    return 1e6 * overlapped_seconds(work, machine.rates);
  }
  if (shape.m <= gather_first_rows(true) && choice.form != Form::copy)  // gathered before the GEMM
    return 1e6 * sequential_seconds(work, machine.rates);
  const int sms = machine.sms - (choice.form == Form::pull ? choice.transfer_sms : choice.form == Form::copy ? 1 : 0);
  const double share = static_cast<double>(std::max(1, sms)) / machine.sms;
  return 1e6 *
         overlapped_seconds(work, machine.rates, share * best_efficiency(shape, choice, columns, std::max(1, sms)));
}

struct TunedGemm {
  std::string name;  // "qkv"; "" of n and k
  GatherKey key;
  DType dtype;
};

std::vector<TunedGemm> gemms_of(const GatherTuneOptions& options, const std::vector<Device>& devices) {
  const int ranks = options.num_ranks();
  if (options.model.empty()) {
    if (!options.n || !options.k)
      throw InputError("tune all-gather-linear: which GEMM? give --model M, or --n and --k");
    const bool shared = devices.front().kind == DeviceKind::cuda && std::ranges::count(devices, devices.front()) > 1;
    return {{.name = "",
             .key = {.n = *options.n,
                     .k = *options.k,
                     .dtype = std::string(name_of(options.dtype)),
                     .ranks = ranks,
                     .device = devices.front().kind,
                     .shared = shared},
             .dtype = options.dtype}};
  }
  if (options.n || options.k)
    throw InputError("tune all-gather-linear: --model has its own --n and --k; give one or the other");
  const std::unique_ptr<ModelSource> source = open_model(options.model);
  const std::optional<GatherKeys> keys = gather_keys_of(
      *source, {.model = options.model, .devices = {}, .dtype = options.model_dtype, .ranks = ranks}, devices);
  if (!keys)
    throw_error<InputError>(
        "tune all-gather-linear: {}: --tp-mode sequence gathers no such GEMM of models with experts or latent "
        "attention, or of weights in a dtype of their own; give --n and --k for a GEMM by itself",
        options.model);
  const DType dtype = *dtype_named(keys->qkv.dtype);
  return {{.name = "qkv", .key = keys->qkv, .dtype = dtype}, {.name = "gate_up", .key = keys->gate_up, .dtype = dtype}};
}

void require_right(const FusedMeasurement::Variant& variant, int rows) {
  constexpr double kMostError = 1e-3;  // of sums in float32 of exact products, in any order
  if (variant.max_relative_error < kMostError) return;
  throw_error<Failure>("{} for {} rows: an error of {:.1e} against float64; nothing is kept", variant.name, rows,
                       variant.max_relative_error);
}

// A line for each choice, in the order of the search.
class SearchTable {
 public:
  void add(const TunedGemm& gemm, const FusedShape& shape, const GatherSample& sample, const GatherChoice& chosen,
           const std::vector<double>& predicted) {
    for (std::size_t i = 0; i < sample.times.size(); ++i) {
      const auto& [choice, microseconds] = sample.times[i];
      const bool is_chosen = choice == chosen;
      rows_.push_back({gemm.name.empty() ? "-" : gemm.name, std::to_string(shape.n), std::to_string(shape.k),
                       std::to_string(shape.m), text_of(choice), fmt::format("{:.1f}", predicted[i]),
                       fmt::format("{:.1f}", microseconds), is_chosen ? "chosen" : ""});
      results_.push_back({{"gemm", gemm.name},
                          {"m", shape.m},
                          {"n", shape.n},
                          {"k", shape.k},
                          {"shard", "m"},
                          {"dtype", gemm.key.dtype},
                          {"choice", text_of(choice)},
                          {"predicted_microseconds", predicted[i]},
                          {"microseconds", microseconds},
                          {"chosen", is_chosen}});
    }
  }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  const ordered_json& results() const { return results_; }

 private:
  std::vector<std::vector<std::string>> rows_{{"gemm", "n", "k", "rows", "choice", "predicted us", "us", ""}};
  ordered_json results_ = ordered_json::array();
};

GatherTable tune_gemm(const TunedGemm& gemm, const GatherTuneOptions& options, const std::vector<Device>& devices,
                      const Machine& machine, SearchTable& search) {
  std::vector<FusedShape> shapes;
  std::vector<std::vector<GatherChoice>> choices;
  std::vector<FusedCaseMaker> cases;
  for (const int rows : sorted_once(options.tokens)) {
    shapes.push_back({.m = rows,
                      .n = gemm.key.n,
                      .k = gemm.key.k,
                      .sharded = Sharded::rows,
                      .dtype = gemm.dtype,
                      .device = devices.front().kind});
    choices.push_back(gather_choices(gemm.key, rows));
    std::vector<GatherWay> ways;
    for (const GatherChoice& choice : choices.back()) ways.push_back({text_of(choice), choice});
    cases.push_back(gather_case(shapes.back(), options.num_ranks(), ways));
  }
  const std::vector<FusedMeasurement> measured = measure_fused(options, devices, cases, [](const auto&) {});
  std::vector<GatherSample> samples;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    GatherSample& sample = samples.emplace_back(GatherSample{.rows = static_cast<int>(shapes[i].m), .times = {}});
    for (std::size_t j = 0; j < choices[i].size(); ++j) {
      require_right(measured[i].variants[j], sample.rows);
      sample.times.push_back({choices[i][j], measured[i].variants[j].microseconds});
    }
  }
  GatherTable table = choose_gathers(samples);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::vector<double> predicted;
    for (const GatherTime& time : samples[i].times)
      predicted.push_back(predicted_microseconds(shapes[i], time.choice, options.num_ranks(), machine));
    search.add(gemm, shapes[i], samples[i], table[i].choice, predicted);
  }
  return table;
}

void tune_gather(const GatherTuneOptions& options) {
  require_no_run("tune all-gather-linear");
  if (options.num_ranks() < 2) throw InputError("tune all-gather-linear: one rank gathers nothing; give --ranks N");
  const std::vector<Device> devices = require_devices(options);
  const std::vector<TunedGemm> gemms = gemms_of(options, devices);
  for (const TunedGemm& gemm : gemms)
    if (gemm.key.n < options.num_ranks())
      throw_error<InputError>("--n {}: {} ranks divide the columns of C, and each needs one", gemm.key.n,
                              options.num_ranks());
  const bool to_file = options.json_file && !options.json_file->empty() && *options.json_file != "-";
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  const Machine machine = devices.front().kind == DeviceKind::cpu ? machine_of_cpu_ranks(store, options.num_ranks())
                                                                  : machine_of_gpu_ranks(devices);
  SearchTable search;
  std::vector<GatherTable> tables;
  for (const TunedGemm& gemm : gemms) tables.push_back(tune_gemm(gemm, options, devices, machine, search));
  for (std::size_t i = 0; i < gemms.size(); ++i) put_tuned_gathers(store, gemms[i].key, tables[i]);

  ordered_json record = bench_record("tune all-gather-linear", {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  record["device"] = options.devices;
  record["ranks"] = options.num_ranks();
  record["results"] = search.results();
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  if (options.json_file && !to_file) return write_stdout(text);
  write_stdout(table_text(search.rows()));
  write_stdout(
      "--tp-mode sequence chooses so for steps of up to as many tokens, and as the last size's line says for larger "
      "ones\n");
}

}  // namespace

void add_tune_gather(CLI::App& tune) {
  const auto options = std::make_shared<GatherTuneOptions>();
  options->largest_bytes = std::size_t{4} << 20;  // as the engine's communicators have it, on which bsp's rounds depend
  CLI::App* command = tune.add_subcommand(
      "all-gather-linear",
      "How the GEMMs behind norms that are divided by token get the rows of all ranks fastest (--tp-mode sequence): by "
      "push, pull, copy or an all-gather first, and on GPUs with which tile and how many SMs");
  add_fused_options(*command, *options);
  command->add_option("--model,-m", options->model, "Tune the GEMMs of this model: its folder, or synth:NAME");
  command->add_option("--tokens", options->tokens, "Rows of A, of all ranks; default 16,64,256,1024,4096")
      ->delimiter(',')
      ->check(CLI::Range(1, static_cast<int>(kMostOfDimension)));
  add_number_option<std::int64_t>(*command, "--n", options->n, "Columns of C, of all ranks, in place of a model",
                                  {.min = 1, .max = kMostOfDimension});
  add_number_option<std::int64_t>(*command, "--k", options->k, "Columns of A, in place of a model",
                                  {.min = 1, .max = kMostOfDimension});
  command
      ->add_option_function<std::string>(
          "--dtype",
          [options](const std::string& text) {
            options->dtype = *dtype_named(text);
            options->model_dtype = options->dtype;
          },
          "Of the weights; default: as the model has them; with --n and --k float32")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  command->callback([options] { tune_gather(*options); });
}

}  // namespace heddle
