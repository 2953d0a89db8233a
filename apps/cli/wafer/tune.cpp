// heddle wafer tune: chooses the numbers of cores for prefill and decode.
#include "wafer/cost/wafer_tune.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/number_option.h"
#include "cli/wafer/cells.h"
#include "cli/wafer/report.h"
#include "cli/wafer/wafer.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostTunedTokens = std::int64_t{1} << 24;

struct TuneOptions {
  WaferOutput output;
  std::string model;
  std::int64_t in = 2048, out = 2048;
};

void run_tune(const TuneOptions& options) {
  const NamedWaferModel model = open_wafer_model(options.model);
  const PlmrDevice device = open_device(options.output);
  const WaferTuning best = tune_wafer(device, model.sizes, options.in, options.out);
  ordered_json object{{"model", model.name},
                      {"device", device.name},
                      {"in", options.in},
                      {"out", options.out},
                      {"prefill_mesh", json_of(best.prefill_mesh)},
                      {"decode_mesh", json_of(best.decode_mesh)}};
  const WaferWork work{.phase = WaferPhase::end_to_end,
                       .prefill_mesh = best.prefill_mesh,
                       .decode_mesh = best.decode_mesh,
                       .context = options.in,
                       .output = options.out};
  const Bases rate = basis_of_rate(device, model.name, work, best.prediction);
  object.update(json_of(device, best.prediction));
  object["basis"] = basis_json(device, work, best.prediction, rate);
  std::string text = line_text(
      "tune", fmt::format("{} on {}, {} tokens in, {} out", model.name, device.name, options.in, options.out));
  text += line_text("prefill", text_of(best.prefill_mesh) + " cores");
  text += line_text("decode", text_of(best.decode_mesh) + " cores");
  text += text_of(device, work, best.prediction, rate);
  write_wafer_result(options.output, device, object, text);
}

}  // namespace

void add_wafer_tune(CLI::App& wafer) {
  const auto options = std::make_shared<TuneOptions>();
  CLI::App* command = wafer.add_subcommand("tune", "Find the meshes that answer a request fastest");
  command->add_option("-m,--model,model", options->model, "NAME or config.json")->required()->type_name("NAME|FILE");
  add_number_option<std::int64_t>(*command, "--in", options->in, "Tokens of the prompt; default 2048",
                                  {.min = 1, .max = kMostTunedTokens});
  add_number_option<std::int64_t>(*command, "--out", options->out, "Tokens to generate; default 2048",
                                  {.min = 1, .max = kMostTunedTokens});
  add_wafer_output_options(*command, options->output);
  command->callback([options] { run_tune(*options); });
}

}  // namespace heddle
