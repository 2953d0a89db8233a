// Formats the wafer's costs as text and JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/wafer/wafer.h"
#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_cost.h"
#include "wafer/cost/wafer_predict.h"

namespace heddle {

// {"microseconds", "cycles", "breakdown": {part: cycles}, "cycles_by_basis": {basis: cycles}, "memory_bytes_per_core",
// "routes", "energy_j"}
nlohmann::ordered_json json_of(const PlmrDevice& device, const WaferCost& cost);

// The same for a prediction's cost, and {"tokens_per_s", "range": [low, high], "regions", "regions_side_by_side",
// "regions_by_cores", "devices", "kv_bytes_per_core", "warnings": [sentence]}.
nlohmann::ordered_json json_of(const PlmrDevice& device, const WaferPrediction& prediction);

// What cycles can be, in the order in which they are printed.
inline constexpr Basis kCycleBases[] = {Basis::simulated, Basis::counted, Basis::analytical, Basis::fitted};

// The parts of a cost, each once. basis: of its cycles, or how many are which: "800 simulated + 34 analytical".
struct PartText {
  std::string name;
  double cycles;
  std::string basis;
};
std::vector<PartText> parts_of(const WaferCost& cost);

// Of a program that ran: what its cycles without fitted costs are, "simulated", "counted" or both.
std::string hops_and_words_basis(const WaferCost& cost);

// The basis of each field of the above JSON. Memory and routes are a formula's, or were counted where a program ran.
nlohmann::ordered_json basis_json(const WaferCost& cost);
// `rate`: of the tokens per second (cells.h).
nlohmann::ordered_json basis_json(const PlmrDevice& device, const WaferWork& work, const WaferPrediction& prediction,
                                  Bases rate);

// [width, height]
nlohmann::ordered_json json_of(WaferMesh mesh);

// "420 x 360"
std::string text_of(WaferMesh mesh);

// Lines "name  value" of a cost: time, the parts with their shares, memory, routes, energy, bases.
std::string text_of(const PlmrDevice& device, const WaferCost& cost);
std::string text_of(const PlmrDevice& device, const WaferWork& work, const WaferPrediction& prediction, Bases rate);

// One line "warning  ..." each.
std::string warning_lines(const std::vector<std::string>& warnings);

// "name         value\n", the format of all of heddle wafer's lines.
std::string line_text(std::string_view name, std::string_view value);

// Writes the object to standard output, with the device's "constants" and the program's "commit", or the text.
void write_wafer_result(const WaferOutput& output, const PlmrDevice& device, nlohmann::ordered_json object,
                        const std::string& text);
// The same of a table whose first row has the names of its columns. CSV as RFC 4180 has it, after lines of # with commit
// and constants.
void write_wafer_table(const WaferOutput& output, const PlmrDevice& device, nlohmann::ordered_json object,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace heddle
