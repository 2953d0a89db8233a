#include "wafer/cost/plmr.h"

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "machine/folder.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

TEST(PlmrDevice, EveryConstantOfAPresetHasASourceAndARangeThatHoldsIt) {
  for (const std::string_view name : plmr_preset_names()) {
    const PlmrDevice device = plmr_preset(name);
    EXPECT_EQ(device.name, name);
    for (const PlmrField& field : plmr_fields()) {
      const Constant& c = device.*field.constant;
      EXPECT_THAT(c.source, Not(IsEmpty())) << name << " " << field.name;
      EXPECT_TRUE(field.min <= c.low && c.low <= c.value && c.value <= c.high && c.high <= field.max)
          << name << " " << field.name;
    }
    EXPECT_LE(device.free_routes.value, device.routes.value) << name;
    EXPECT_GE(device.mac_cycles.low, 1 / device.peak_macs_per_cycle.high) << name;  // no faster than its peak
  }
}

TEST(PlmrDevice, Wse2IsThePapers) {
  const PlmrDevice d = plmr_preset("wse-2");
  EXPECT_EQ(d.sram_bytes.value, 49152);
  EXPECT_EQ(d.num_cores.value, 850000);
  EXPECT_EQ(d.free_routes.value, 21);
  EXPECT_DOUBLE_EQ(d.seconds(1.1e9), 1.0);
  EXPECT_DOUBLE_EQ(d.joules(1.1e9), 15000);
}

TEST(PlmrDevice, AFileOverridesAPreset) {
  const PlmrDevice d = parse_plmr_device(
      R"({"name": "mine", "base": "wse-2", "clock_ghz": 0.85,
          "sram_bytes": {"value": 65536, "low": 49152, "high": 65536, "source": "a guess"}})",
      "mine.json");
  EXPECT_EQ(parse_plmr_device(R"({"base": "wse-2", "clock_ghz": 0.85})", "my.json").name, "wse-2 (my.json)");
  EXPECT_EQ(d.name, "mine");
  EXPECT_EQ(d.clock_ghz.value, 0.85);
  EXPECT_EQ(d.clock_ghz.low, 0.85);
  EXPECT_EQ(d.clock_ghz.source, "mine.json");
  EXPECT_EQ(d.sram_bytes.low, 49152);
  EXPECT_EQ(d.sram_bytes.source, "a guess");
  EXPECT_EQ(d.mac_cycles.value, plmr_preset("wse-2").mac_cycles.value);
}

TEST(PlmrDevice, AFileThatIsWholeNeedsNoBase) {
  std::string text = "{";
  for (const PlmrField& field : plmr_fields())
    if (!field.has_default)
      text += (text.size() > 1 ? ", \"" : "\"") + std::string(field.name) +
              (field.name == "num_cores" ? "\": 81" : "\": 9");
  EXPECT_EQ(parse_plmr_device(text + "}", "x.json").beta_cycles.value, 9);
}

TEST(PlmrDevice, RefusesAMalformedFileWithFieldAndReason) {
  const struct {
    std::string_view text, field, reason;
  } cases[] = {
      {"", "d.json", ""},
      {"[]", "d.json", "an object"},
      {"{}", "d.json", "mesh_width is missing"},
      {R"({"base": "wse-9"})", "base", "wse-3"},
      {R"({"base": 3})", "base", "string"},
      {R"({"base": "wse-2", "clock": 1})", "clock", "no constant"},
      {R"({"base": "wse-2", "clock_ghz": "fast"})", "clock_ghz", "number"},
      {R"({"base": "wse-2", "clock_ghz": 0})", "clock_ghz", "0"},
      {R"({"base": "wse-2", "mesh_width": 2})", "mesh_width", "2"},
      {R"({"base": "wse-2", "mesh_width": 3.5})", "mesh_width", "whole"},
      {R"({"base": "wse-2", "alpha_cycles": -1})", "alpha_cycles", "-1"},
      {R"({"base": "wse-2", "alpha_cycles": 1e300})", "alpha_cycles", "1e+300"},
      {R"({"base": "wse-2", "alpha_cycles": {}})", "alpha_cycles", "value"},
      {R"({"base": "wse-2", "alpha_cycles": {"value": 1, "low": 2}})", "alpha_cycles", "low <= value <= high"},
      {R"({"base": "wse-2", "alpha_cycles": {"value": 1, "max": 2}})", "alpha_cycles: max", "unknown"},
      {R"({"base": "wse-2", "alpha_cycles": {"value": 1, "source": 2}})", "alpha_cycles: source", "string"},
      {R"({"base": "wse-2", "free_routes": 25})", "free_routes", "25 of 24"},
      {R"({"base": "wse-2", "num_cores": 100})", "num_cores", "fewer than the"},
  };
  for (const auto& c : cases)
    EXPECT_THAT([&] { parse_plmr_device(c.text, "d.json"); },
                ThrowsMessage<InputError>(
                    AllOf(HasSubstr("d.json"), HasSubstr(std::string(c.field)), HasSubstr(std::string(c.reason)))))
        << c.text;
}

TEST(PlmrDevice, OpensPresetsAndFilesAndListsPresetsWhereThereIsNeither) {
  const TestFolder folder;
  folder.write("d.json", R"({"base": "dojo", "power_watts": 1})");
  EXPECT_EQ(open_plmr_device((folder.path() / "d.json").string()).power_watts.value, 1);
  EXPECT_EQ(open_plmr_device("wormhole").name, "wormhole");
  EXPECT_THAT([] { open_plmr_device("wse-4"); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("wse-4"), HasSubstr("blackhole"))));
}

// Hops, ramps and words keep their cost, and nothing that was fitted has any.
TEST(PlmrDevice, WithoutFittedCostsHasHopsAndWordsAlone) {
  PlmrDevice device = plmr_preset("wse-2");
  device.vector_slice_cycles.value = 5;
  const PlmrDevice bare = without_fitted_costs(device);
  const std::set<std::string_view> fitted{"mac_cycles",   "call_cycles",          "vector_slice_cycles",
                                          "value_cycles", "decode_serial_cycles", "beta_cycles"};
  for (const PlmrField& field : plmr_fields())
    EXPECT_EQ((bare.*field.constant).value, fitted.contains(field.name) ? 0 : (device.*field.constant).value)
        << field.name;
}

}  // namespace
}  // namespace heddle
