#include "cli/wafer/wafer.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/number_option.h"

namespace heddle {
namespace {

constexpr int kMostMeshSide = 65535;

// Nothing if the text is not a mesh.
std::optional<WaferMesh> parse_mesh(const std::string& text) {
  WaferMesh mesh;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, mesh.width);
  if (error != std::errc()) return std::nullopt;
  mesh.height = mesh.width;
  if (end != last) {
    if (*end != 'x') return std::nullopt;
    const auto [end_of_height, height_error] = std::from_chars(end + 1, last, mesh.height);
    if (height_error != std::errc() || end_of_height != last) return std::nullopt;
  }
  if (mesh.width < 1 || mesh.width > kMostMeshSide || mesh.height < 1 || mesh.height > kMostMeshSide)
    return std::nullopt;
  return mesh;
}

}  // namespace

void add_wafer_output_options(CLI::App& command, WaferOutput& output) {
  command.add_option("--device", output.device, "wse-2 (default), wse-3, blackhole, wormhole, dojo, or a JSON file")
      ->type_name("NAME|FILE");
  add_number_option<double>(command, "--sram-bytes", output.sram_bytes, "Memory of a core, in place of the device's",
                            {.min = 1, .max = 1e12});
  command.add_flag("--json", output.json, "One JSON object");
}

void add_csv_option(CLI::App& command, WaferOutput& output) {
  command.add_flag("--csv", output.csv, "The table as CSV, after lines of # with commit and constants");
}

PlmrDevice open_device(const WaferOutput& output) {
  if (output.csv && output.json) throw_error<InputError>("--csv and --json: give one, a result has one form");
  PlmrDevice device = open_plmr_device(output.device);
  if (output.sram_bytes) device.sram_bytes.value = *output.sram_bytes;
  return device;
}

void add_mesh_option(CLI::App& command, const std::string& name, std::optional<WaferMesh>& target,
                     const std::string& description) {
  command
      .add_option_function<std::string>(
          name,
          [&target, name](const std::string& text) {
            const std::optional<WaferMesh> mesh = parse_mesh(text);
            if (!mesh)
              throw CLI::ValidationError(
                  name, fmt::format("is \"{}\", expected a side, as 420, or sides, as 420x360, each from 3 to {}", text,
                                    kMostMeshSide));
            target = mesh;
          },
          description)
      ->type_name("N|NxM");
}

void add_kv_option(CLI::App& command, KvMethod& target, const std::string& description) {
  command
      .add_option_function<std::string>(
          "--kv",
          [&target](const std::string& name) { target = name == "concat" ? KvMethod::concat : KvMethod::shift; },
          description)
      ->check(CLI::IsMember({"shift", "concat"}))
      ->default_str("shift");
}

WaferMesh mesh_on(const PlmrDevice& device, WaferMesh mesh) {
  const int most = static_cast<int>(std::min(device.mesh_width.value, device.mesh_height.value));
  return mesh.width <= most && mesh.height <= most ? mesh : WaferMesh{most, most};
}

WaferSync wafer_sync(const std::string& name) {
  return name == "rendezvous" ? WaferSync::rendezvous : name == "barrier" ? WaferSync::barrier : WaferSync::dataflow;
}

const char* name_of(WaferSync sync) {
  return sync == WaferSync::rendezvous ? "rendezvous" : sync == WaferSync::barrier ? "barrier" : "dataflow";
}

WaferMethod wafer_method(const std::string& name) {
  if (name == "t10") return WaferMethod::t10;
  return name == "ladder" ? WaferMethod::ladder : WaferMethod::waferllm;
}

void add_wafer(CLI::App& app) {
  CLI::App* wafer = app.add_subcommand("wafer", "Run and predict language models on a simulated wafer");
  wafer->require_subcommand(1);
  add_wafer_predict(*wafer);
  add_wafer_gemm(*wafer);
  add_wafer_gemv(*wafer);
  add_wafer_kv(*wafer);
  add_wafer_sweep(*wafer);
  add_wafer_tune(*wafer);
  add_wafer_tables(*wafer);
  add_wafer_run(*wafer);
}

}  // namespace heddle
