#include "cli/wafer/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "cli/bench/commit.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "cli/output.h"

namespace heddle {

using nlohmann::ordered_json;

ordered_json json_of(const PlmrDevice& device, const WaferCost& cost) {
  ordered_json parts = ordered_json::object(), by_basis = ordered_json::object();
  for (const WaferCost::Part& part : cost.breakdown) {
    parts[part.name] = cost.cycles(part.name);
    by_basis[text_of(part.basis)] = cost.cycles(part.basis);
  }
  return {{"microseconds", device.seconds(cost.cycles()) * 1e6},
          {"cycles", cost.cycles()},
          {"breakdown", parts},
          {"cycles_by_basis", by_basis},
          {"memory_bytes_per_core", cost.memory_bytes},
          {"routes", cost.routes},
          {"energy_j", device.joules(cost.cycles())}};
}

ordered_json json_of(const PlmrDevice& device, const WaferPrediction& prediction) {
  ordered_json object{{"tokens_per_s", prediction.tokens_per_second},
                      {"range", {prediction.range.low, prediction.range.high}}};
  object.update(json_of(device, prediction.cost));
  object["regions"] = prediction.regions;
  object["regions_side_by_side"] = prediction.room.side_by_side;
  object["regions_by_cores"] = prediction.room.by_cores;
  object["devices"] = prediction.devices;
  object["kv_bytes_per_core"] = prediction.kv_bytes;
  object["warnings"] = prediction.warnings;
  object["notes"] = prediction.notes;
  return object;
}

namespace {

// A program that ran has counted its tiles and routes.
Basis basis_of_memory(const WaferCost& cost) {
  return cost.bases().has(Basis::simulated) || cost.bases().has(Basis::counted) ? Basis::counted : Basis::analytical;
}

// Decode leaves room for the KV reserve, a fitted number.
Bases basis_of_memory(const WaferWork& work) {
  const bool has_reserve = work.method == WaferMethod::waferllm && work.phase != WaferPhase::prefill;
  return has_reserve ? Basis::analytical | Basis::fitted : Bases(Basis::analytical);
}

}  // namespace

std::string hops_and_words_basis(const WaferCost& cost) {
  Bases ran;
  for (const Basis basis : {Basis::simulated, Basis::counted})
    if (cost.bases().has(basis)) ran |= basis;
  return text_of(ran);
}

ordered_json basis_json(const WaferCost& cost) {
  ordered_json parts = ordered_json::object(), by_basis = ordered_json::object();
  for (const WaferCost::Part& part : cost.breakdown) {
    parts[part.name] = text_of(cost.bases(part.name));
    by_basis[text_of(part.basis)] = text_of(part.basis);
  }
  const std::string cycles = text_of(cost.bases()), memory = text_of(basis_of_memory(cost));
  return {{"microseconds", cycles},
          {"cycles", cycles},
          {"breakdown", parts},
          {"cycles_by_basis", by_basis},
          {"memory_bytes_per_core", memory},
          {"routes", memory},
          {"energy_j", text_of(Basis::fitted)}};
}

ordered_json basis_json(const PlmrDevice& device, const WaferWork& work, const WaferPrediction& prediction,
                        Bases rate) {
  const std::string range = text_of(device.other_fits.empty() ? Basis::analytical : Basis::fitted);
  const std::string memory = text_of(basis_of_memory(work)), area = text_of(Basis::analytical);
  ordered_json basis{{"tokens_per_s", text_of(rate)}, {"range", range}};
  basis.update(basis_json(prediction.cost));
  basis["microseconds"] = basis["cycles"] = text_of(rate);
  for (const char* field : {"memory_bytes_per_core", "regions", "devices", "kv_bytes_per_core"}) basis[field] = memory;
  for (const char* field : {"regions_side_by_side", "regions_by_cores"}) basis[field] = area;
  return basis;
}

std::vector<PartText> parts_of(const WaferCost& cost) {
  std::vector<PartText> parts;
  for (const auto& [name, cycles, basis] : cost.breakdown) {
    if (std::ranges::find(parts, name, &PartText::name) != parts.end()) continue;
    PartText part{name, cost.cycles(name), text_of(cost.bases(name))};
    if (cost.bases(name) != basis) {
      std::vector<std::string> amounts;
      for (const Basis one : kCycleBases)
        for (const WaferCost::Part& other : cost.breakdown)
          if (other.name == name && other.basis == one)
            amounts.push_back(fmt::format("{:.0f} {}", other.cycles, text_of(one)));
      part.basis = fmt::format("{}", fmt::join(amounts, " + "));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

ordered_json json_of(WaferMesh mesh) {
  return ordered_json::array({mesh.width, mesh.height});
}

std::string text_of(WaferMesh mesh) {
  return fmt::format("{} x {}", mesh.width, mesh.height);
}

std::string line_text(std::string_view name, std::string_view value) {
  return fmt::format("{:<20} {}\n", name, value);
}

namespace {

std::string lines_of(const PlmrDevice& device, const WaferCost& cost) {
  const double cycles = cost.cycles();
  std::string text = line_text("time", fmt::format("{}, {:.0f} cycles at {} GHz", si_text(device.seconds(cycles), "s"),
                                                   cycles, device.clock_ghz.value));
  for (const PartText& part : parts_of(cost))
    text += line_text("  " + part.name,
                      fmt::format("{:.0f} cycles, {:.1f} %{}", part.cycles, cycles > 0 ? 100 * part.cycles / cycles : 0,
                                  part.basis == text_of(cost.bases()) ? "" : ", " + part.basis));
  text += line_text("memory a core", fmt::format("{:.0f} of {:.0f} bytes", cost.memory_bytes, device.sram_bytes.value));
  text += line_text("routes a core", fmt::format("{} of {:.0f}", cost.routes, device.free_routes.value));
  text += line_text("energy", fmt::format("{} (thermal design power, {}, times time)",
                                          si_text(device.joules(cycles), "J"), si_text(device.power_watts.value, "W")));
  return text;
}

}  // namespace

std::string text_of(const PlmrDevice& device, const WaferCost& cost) {
  return lines_of(device, cost) +
         line_text("basis", fmt::format("time {}; memory and routes {}; energy {}", text_of(cost.bases()),
                                        text_of(basis_of_memory(cost)), text_of(Basis::fitted)));
}

std::string text_of(const PlmrDevice& device, const WaferWork& work, const WaferPrediction& prediction, Bases rate) {
  const WaferRange& range = prediction.range;
  std::string text =
      line_text("tokens a second", fmt::format("{:.1f}, from {:.1f} to {:.1f} by the constants and the model's error",
                                               prediction.tokens_per_second, range.low, range.high)) +
      lines_of(device, prediction.cost) +
      line_text("keys and values", fmt::format("{:.0f} of a core's bytes", prediction.kv_bytes)) +
      line_text("regions",
                fmt::format("{}; {} of that mesh lie side by side on {}, {} by the number of its cores",
                            prediction.regions, prediction.room.side_by_side, device.name, prediction.room.by_cores));
  text += line_text("basis", fmt::format("time {}; memory and regions {}; range and energy {}", text_of(rate),
                                         text_of(basis_of_memory(work)), text_of(Basis::fitted)));
  text += warning_lines(prediction.warnings);
  for (const std::string& note : prediction.notes) text += line_text("note", note);
  return text;
}

std::string warning_lines(const std::vector<std::string>& warnings) {
  std::string lines;
  for (const std::string& warning : warnings) lines += line_text("warning", warning);
  return lines;
}

namespace {

ordered_json constants_of(const PlmrDevice& device) {
  ordered_json constants = ordered_json::object();
  for (const PlmrField& field : plmr_fields()) constants[std::string(field.name)] = (device.*field.constant).value;
  const BaselineConstants baselines = baseline_constants(device);
  constants.update({{"t10_crossbar", baselines.t10_crossbar},
                    {"t10_crossbar_power", baselines.t10_crossbar_power},
                    {"t10_relay", baselines.t10_relay},
                    {"ladder_access", baselines.ladder_access},
                    {"ladder_weight", baselines.ladder_weight},
                    {"ladder_weight_power", baselines.ladder_weight_power},
                    {"ladder_sum_access", baselines.ladder_sum_access},
                    {"ladder_sum_value", baselines.ladder_sum_value},
                    {"ladder_sum_weight", baselines.ladder_sum_weight},
                    {"kv_reserve_bytes", KvCapacityOptions{}.reserve_bytes}});
  return constants;
}

// Quoted where it has to be.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_text(const PlmrDevice& device, const std::vector<std::vector<std::string>>& rows) {
  std::string text = fmt::format("# heddle {}, {}", kBenchCommit, device.name);
  const ordered_json constants = constants_of(device);
  for (const auto& [name, value] : constants.items()) text += fmt::format(", {} {}", name, value.dump());
  text += '\n';
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) text += csv_cell(row[i]) + (i + 1 < row.size() ? "," : "\n");
  return text;
}

}  // namespace

void write_wafer_result(const WaferOutput& output, const PlmrDevice& device, ordered_json object,
                        const std::string& text) {
  if (!output.json) return write_stdout(text);
  object["constants"] = constants_of(device);
  object["commit"] = kBenchCommit;
  write_stdout(object.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n");
}

void write_wafer_table(const WaferOutput& output, const PlmrDevice& device, ordered_json object,
                       const std::vector<std::vector<std::string>>& rows) {
  if (output.csv) return write_stdout(csv_text(device, rows));
  write_wafer_result(output, device, std::move(object), table_text(rows));
}

}  // namespace heddle
