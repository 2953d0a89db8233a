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

void run_block_bench(const BlockBenchOptions& options) {
  const std::vector<std::string> names = shape_names();
  if (std::ranges::find(names, options.shape) == names.end())
    throw_error<InputError>("--shape: no shape {}, expected one of {}", printable_text(options.shape),
                            fmt::join(names, ", "));
  const std::vector<std::string> of_heads = decode_block_shapes();
  if (options.figure != 0 && std::ranges::find(of_heads, options.shape) == of_heads.end())
    throw_error<InputError>(
        "--figure: {} divides the keys and values of heads, and --shape {} has latents; choose one of {}",
        options.figure, options.shape, fmt::join(of_heads, ", "));
  if (!kHaveCuda) throw_error<Failure>("bench block measures a Hopper GPU, and this build has no CUDA");
  ordered_json record = bench_record("block", {});
  for (const char* field : {"model", "threads", "dtype", "compute"}) record.erase(field);
  const bool to_file = options.json_file && !options.json_file->empty();
  if (to_file) PendingFile{*options.json_file};  // an unwritable file is reported now
  record["shape"] = options.shape;
  record["batch"] = options.batch;
  record["layers"] = options.layers;
  if (options.figure != 0) record["figure"] = options.figure;
  ordered_json contexts = ordered_json::array();
  std::vector<std::vector<std::string>> rows{
      {"context", "how", "us", "p10", "p90", "of roofline", "against separate", "differs by"}};
  for (const int context : options.contexts) {
    const std::unique_ptr<BlockBench> bench = make_bench(options, context);
    record["gpu"] = gpu_record(bench->device().device());
    const double floor = bench->floor_seconds();
    const std::vector<BlockWay> all = bench->ways();
    std::vector<std::vector<double>> samples(all.size());
    for (int sample = -2; sample < options.repeats; ++sample)  // two warm up; interleaved
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
      rows.push_back({std::to_string(context), one.name, us(median_seconds), us(quantile(samples[i], 0.1)),
                      us(quantile(samples[i], 0.9)), fmt::format("{:.0f} %", floor / median_seconds * 100),
                      fmt::format("{:.3f}x", against), one.difference ? fmt::format("{:.1e}", *one.difference) : ""});
    }
    contexts.push_back({{"context", context}, {"floor_seconds", floor}, {"ways", ways}});
  }
  record["contexts"] = contexts;
  const std::string text = record.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
  if (to_file) write_file(*options.json_file, text);
  write_stdout(options.json_file && !to_file ? text : table_text(rows));
}

}  // namespace

void add_block_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<BlockBenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "block", "The attention block of a decoding step: fused over clusters, and separate operators");
  command->add_option("--shape", options->shape,
                      fmt::format("Of which model: {}; default {}", fmt::join(shape_names(), ", "), options->shape));
  command->add_option("--context", options->contexts, "Tokens in the cache; default 1024,4096,16384")->delimiter(',');
  command
      ->add_option("--figure", options->figure,
                   "20: SplitToken beside SplitHead, as in ClusterFusion's figure 20, in clusters of 2, 4 and 8")
      ->check(CLI::IsMember({20}));
  add_number_option<int>(*command, "--batch", options->batch, "Sequences; default 1", {.min = 1, .max = 16});
  add_number_option<int>(*command, "--layers", options->layers, "Layers in a sample; default 8", {.min = 1, .max = 64});
  add_number_option<int>(*command, "--repeats", options->repeats, "Samples; default 10", {.min = 1, .max = 10000});
  add_json_option(*command, options->json_file);
  command->callback([options] {
    for (const int context : options->contexts)
      if (context < 1 || context > 1 << 20)
        throw CLI::ValidationError("--context", fmt::format("is {}, expected 1 to {}", context, 1 << 20));
    run_block_bench(*options);
  });
}

}  // namespace heddle
