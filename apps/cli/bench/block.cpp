// bench block: several layers in one graph, with weights and pages of their own, so that none comes from the cache.
#include "cli/bench/block.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/bench/block_figures.h"
#include "cli/bench/block_ways.h"
#include "cli/bench/quantile.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "cli/output.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> shape_names() {
  std::vector<std::string> names = decode_block_shapes();
  std::ranges::copy(latent_block_shapes(), std::back_inserter(names));
  return names;
}

// Of a shape that there is.
std::unique_ptr<BlockBench> make_bench(const BlockBenchOptions& options, int context) {
  std::unique_ptr<BlockBench> bench = make_decode_block_bench(options, context);
  return bench != nullptr ? std::move(bench) : make_latent_block_bench(options, context);
}

// What is measured, checked: shapes by context, and the sequences of each.
struct BlockRun {
  BlockBenchOptions options;
  std::vector<std::string> shapes;
};

BlockRun run_of(const BlockBenchOptions& options, const CLI::App& command) {
  BlockRun run{.options = options, .shapes = {options.shape}};
  const std::vector<std::string> names = shape_names();
  if (std::ranges::find(names, options.shape) == names.end())
    throw_error<InputError>("--shape: no shape {}, expected one of {}", printable_text(options.shape),
                            fmt::join(names, ", "));
  const BlockFigure* const figure = block_figure(options.figure);
  if (figure == nullptr) return run;
  const std::vector<std::string> of_heads = decode_block_shapes();
  if (!figure->shapes.empty() && command.get_option("--shape")->count() > 0)
    throw_error<InputError>("--figure {} has shapes of its own ({}): leave out --shape", figure->number,
                            fmt::join(figure->shapes, ", "));
  if (!figure->takes_latents && std::ranges::find(of_heads, options.shape) == of_heads.end())
    throw_error<InputError>("--figure: {} is of keys and values of heads, and --shape {} has latents; choose one of {}",
                            figure->number, options.shape, fmt::join(of_heads, ", "));
  if (command.get_option("--batch")->count() > 0 && options.batch != figure->batch)
    throw_error<InputError>("--figure {} has {} sequence{}: leave out --batch", figure->number, figure->batch,
                            figure->batch == 1 ? "" : "s");
  run.options.batch = figure->batch;
  if (command.get_option("--context")->count() == 0) run.options.contexts = figure->contexts;
  if (!figure->shapes.empty()) run.shapes = figure->shapes;
  return run;
}

// Samples of every way, interleaved, as rows of the table and as JSON.
ordered_json measure_ways(BlockBench& bench, int repeats, const std::string& where,
                          std::vector<std::vector<std::string>>& rows) {
  const double floor = bench.floor_seconds();
  const std::vector<BlockWay> all = bench.ways();
  std::vector<std::vector<double>> samples(all.size());
  for (int sample = -2; sample < repeats; ++sample)  // two warm up
    for (std::size_t way = 0; way < all.size(); ++way) {
      const double seconds = all[way].run();
      if (sample >= 0) samples[way].push_back(seconds);
    }
  ordered_json ways = ordered_json::array();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const BlockWay& one = all[i];
    const double median_seconds = median(samples[i]), against = median(samples[0]) / median_seconds;
    ordered_json way{{"how", one.name},
                     {"seconds", spread(samples[i])},
                     {"fraction_of_roofline", floor / median_seconds},
                     {"ratio_to_separate", against}};
    if (one.difference) way["relative_difference"] = *one.difference;
    if (!one.details.is_null()) way.update(one.details);
    ways.push_back(way);
    const auto us = [](double seconds) { return fmt::format("{:.1f}", seconds * 1e6); };
    rows.push_back({where, one.name, us(median_seconds), us(quantile(samples[i], 0.1)), us(quantile(samples[i], 0.9)),
                    fmt::format("{:.0f} %", floor / median_seconds * 100), fmt::format("{:.3f}x", against),
                    one.difference ? fmt::format("{:.1e}", *one.difference) : ""});
  }
  return {{"floor_seconds", floor}, {"ways", ways}};
}

void run_block_bench(const BlockRun& run) {
  const BlockBenchOptions& options = run.options;
  if (!kHaveCuda) throw_error<Failure>("bench block measures a Hopper GPU, and this build has no CUDA");
  ordered_json record = bench_record("block", {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  const bool to_file = options.json_file && !options.json_file->empty();
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  if (!options.svg_file.empty()) PendingFile{options.svg_file};
  const bool has_one_shape = run.shapes.size() == 1;
  if (has_one_shape) record["shape"] = options.shape;
  record["batch"] = options.batch;
  record["layers"] = options.layers;
  if (options.figure != 0) record["figure"] = options.figure;
  ordered_json contexts = ordered_json::array();
  std::vector<std::vector<std::string>> rows{
      {"context", "how", "us", "p10", "p90", "of roofline", "against separate", "differs by"}};
  for (const std::string& shape : run.shapes)
    for (const int context : options.contexts) {
      BlockBenchOptions of_shape = options;
      of_shape.shape = shape;
      const std::unique_ptr<BlockBench> bench = make_bench(of_shape, context);
      record["gpu"] = gpu_record(bench->device().device());
      ordered_json measured{{"context", context}};
      if (!has_one_shape) measured["shape"] = shape;
      measured.update(
          measure_ways(*bench, options.repeats, (has_one_shape ? "" : shape + ", ") + std::to_string(context), rows));
      contexts.push_back(std::move(measured));
    }
  record["contexts"] = contexts;
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  if (!options.svg_file.empty()) write_file(options.svg_file, svg_of_block(record));
  write_stdout(options.json_file && !to_file ? text : table_text(rows));
}

std::string figures_text() {
  std::vector<std::string> figures;
  for (const BlockFigure& figure : block_figures())
    figures.push_back(fmt::format("{}: {}", figure.number, figure.words));
  return "Of ClusterFusion's figures " + fmt::format("{}", fmt::join(figures, "; "));
}

std::vector<int> figure_numbers() {
  std::vector<int> numbers;
  for (const BlockFigure& figure : block_figures()) numbers.push_back(figure.number);
  return numbers;
}

}  // namespace

void add_block_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<BlockBenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "block", "The attention block of a decoding step: fused over clusters, and separate operators");
  command->add_option("--shape", options->shape,
                      fmt::format("Of which model: {}; default {}", fmt::join(shape_names(), ", "), options->shape));
  command->add_option("--context", options->contexts, "Tokens in the cache; default 1024,4096,16384")->delimiter(',');
  command->add_option("--figure", options->figure, figures_text())->check(CLI::IsMember(figure_numbers()));
  add_number_option<int>(*command, "--batch", options->batch, "Sequences; default 1", {.min = 1, .max = 16});
  add_number_option<int>(*command, "--layers", options->layers, "Layers in a sample; default 8", {.min = 1, .max = 64});
  add_number_option<int>(*command, "--repeats", options->repeats, "Samples; default 10", {.min = 1, .max = 10000});
  add_json_option(*command, options->json_file);
  command->add_option("--svg", options->svg_file, "Also draw the figure into this file")->type_name("FILE");
  command->callback([options, command] {
    for (const int context : options->contexts)
      if (context < 1 || context > 1 << 20)
        throw CLI::ValidationError("--context", fmt::format("is {}, expected 1 to {}", context, 1 << 20));
    run_block_bench(run_of(*options, *command));
  });
}

}  // namespace heddle
