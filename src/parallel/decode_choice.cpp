#include "parallel/decode_choice.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

using Form = DecodeChoice::Form;
using nlohmann::json;

constexpr int kAnySize = std::numeric_limits<int>::max();

template <class Value, std::size_t count>
using Names = std::array<std::pair<Value, std::string_view>, count>;
constexpr Names<DecodeMode, 3> kDecodeModes{
    {{DecodeMode::automatic, "auto"}, {DecodeMode::plain, "plain"}, {DecodeMode::fused, "fused"}}};
constexpr Names<Form, 3> kForms{{{Form::plain, "plain"}, {Form::clusters, "clusters"}, {Form::streamed, "streamed"}}};

template <class Value, std::size_t count>
std::optional<Value> value_named(const Names<Value, count>& names, std::string_view name) {
  for (const auto& [value, text] : names)
    if (text == name) return value;
  return std::nullopt;
}

template <class Value, std::size_t count>
std::string_view name_in(const Names<Value, count>& names, Value value) {
  for (const auto& [each, text] : names)
    if (each == value) return text;
  throw_error<InvalidArgument>("no name of {}", static_cast<int>(value));
}

std::string decode_name_of(const SplitKey& key) {
  return "decode." + name_of(key);
}

// A number of a row from 1 to `most`; without the field, `most`. Nothing: it is something else.
std::optional<int> number_in(const json& row, const char* field, int most) {
  const json value = row.value(field, json(most));
  if (!value.is_number_integer()) return std::nullopt;
  const auto number = value.get<std::int64_t>();
  if (number < 1 || number > most) return std::nullopt;
  return static_cast<int>(number);
}

// False: there is something else than the times of a step.
bool read_times(const json& row, std::optional<DecodeTimes>& times) {
  if (!row.contains("separate_ms") && !row.contains("fused_ms")) return true;
  const json separate = row.value("separate_ms", json()), fused = row.value("fused_ms", json());
  if (!separate.is_number() || !fused.is_number()) return false;
  times = DecodeTimes{.separate_seconds = 1e-3 * separate.get<double>(), .fused_seconds = 1e-3 * fused.get<double>()};
  return true;
}

std::optional<DecodeLine> line_in(const json& row) {
  if (!row.is_object() || !row.contains("form") || !row["form"].is_string()) return std::nullopt;
  const std::optional<Form> form = value_named(kForms, row["form"].get<std::string>());
  const auto tokens = number_in(row, "up_to_tokens", kAnySize), context = number_in(row, "up_to_context", kAnySize);
  if (!form || !tokens || !context) return std::nullopt;
  DecodeLine line{.up_to_tokens = *tokens, .up_to_context = *context, .choice = {.form = *form}};
  if (!read_times(row, line.times)) return std::nullopt;
  if (*form != Form::clusters) return line;
  constexpr int kMost = std::numeric_limits<std::uint8_t>::max();
  const auto cluster = number_in(row, "cluster", kMost), parts = number_in(row, "parts", kMost);
  if (!row.contains("cluster") || !row.contains("parts") || !cluster || !parts) return std::nullopt;
  line.choice.cluster = static_cast<std::uint8_t>(*cluster);
  line.choice.parts = static_cast<std::uint8_t>(*parts);
  return line;
}

}  // namespace

std::string_view name_of(DecodeMode mode) {
  return name_in(kDecodeModes, mode);
}

std::optional<DecodeMode> decode_mode_named(std::string_view name) {
  return value_named(kDecodeModes, name);
}

std::vector<std::string> decode_mode_names() {
  std::vector<std::string> names;
  names.reserve(kDecodeModes.size());
  for (const auto& mode : kDecodeModes) names.emplace_back(mode.second);
  return names;
}

std::string text_of(const DecodeChoice& choice, DeviceKind device) {
  if (choice.form == Form::plain) return "separate operators";
  if (device == DeviceKind::cpu) return "one operator";
  if (choice.form == Form::streamed) return "one operator, streamed by a block on each SM";
  std::string text =
      fmt::format("one operator, in clusters of {} block{}", choice.cluster, choice.cluster == 1 ? "" : "s");
  if (choice.parts > 1) text += fmt::format(", each KV head's query heads in {} parts", choice.parts);
  return text;
}

bool has_fused(const DecodeTable& table) {
  return std::ranges::any_of(table, [](const DecodeLine& line) { return line.choice.fused(); });
}

std::string why_chosen(const DecodeLine& line) {
  if (!line.times) return {};
  const double separate = 1e3 * line.times->separate_seconds, fused = 1e3 * line.times->fused_seconds;
  return line.choice.fused() ? fmt::format("{:.3f} ms a step, separate operators {:.3f} ms", fused, separate)
                             : fmt::format("{:.3f} ms a step, the fastest fused form {:.3f} ms", separate, fused);
}

// The streamed form is ahead of all clusters wherever both were measured (docs/notes/cluster.md).
std::vector<DecodeChoice> fused_choices(DeviceKind device) {
  if (device == DeviceKind::cpu) return {{.form = Form::clusters}};
  std::vector<DecodeChoice> choices{{.form = Form::streamed}};
  for (const std::uint8_t parts : {1, 2, 4, 8})
    for (const std::uint8_t cluster : {4, 8, 16, 2})
      choices.push_back({.form = Form::clusters, .cluster = cluster, .parts = parts});
  return choices;
}

DecodeTable forced_decode(DeviceKind device) {
  DecodeTable table;
  for (const DecodeChoice& choice : fused_choices(device)) table.push_back({.choice = choice});
  return table;
}

DecodeTable choose_decode(const std::vector<DecodeSample>& samples) {
  constexpr double kFaster = 0.99;
  require(!samples.empty(), "no measured step");
  DecodeTable table;
  for (const DecodeSample& sample : samples) {
    if (!sample.left_out.empty()) continue;
    DecodeLine line{.up_to_tokens = sample.tokens, .up_to_context = sample.context, .choice = {}};
    const auto fastest = std::ranges::min_element(sample.fused, {}, &DecodeSample::Fused::seconds);
    require(fastest != sample.fused.end(), "{} x {} was measured in no fused form", sample.tokens, sample.context);
    line.times = DecodeTimes{.separate_seconds = sample.plain_seconds, .fused_seconds = fastest->seconds};
    if (fastest->seconds <= kFaster * sample.plain_seconds) line.choice = fastest->choice;
    if (!table.empty() && table.back().up_to_tokens != line.up_to_tokens) table.back().up_to_context = kAnySize;
    table.push_back(line);
  }
  if (table.empty()) return table;
  table.back().up_to_context = kAnySize;
  const int most = table.back().up_to_tokens;
  for (DecodeLine& line : table)
    if (line.up_to_tokens == most) line.up_to_tokens = kAnySize;
  return table;
}

std::optional<DecodeTable> tuned_decode(const TunedStore& store, const SplitKey& key) {
  const auto value = store.value(decode_name_of(key));
  return value ? decode_table_in(*value) : std::nullopt;
}

std::optional<DecodeTable> decode_table_in(const json& rows) {
  if (!rows.is_array()) return std::nullopt;
  DecodeTable table;
  for (const json& row : rows) {
    const std::optional<DecodeLine> line = line_in(row);
    if (!line) return std::nullopt;
    table.push_back(*line);
  }
  return table;
}

void put_tuned_decode(TunedStore& store, const SplitKey& key, const DecodeTable& table) {
  json rows = json::array();
  for (const DecodeLine& line : table) {
    json row{{"form", name_in(kForms, line.choice.form)}};
    if (line.up_to_tokens != kAnySize) row["up_to_tokens"] = line.up_to_tokens;
    if (line.up_to_context != kAnySize) row["up_to_context"] = line.up_to_context;
    if (line.choice.form == Form::clusters) {
      row["cluster"] = line.choice.cluster;
      row["parts"] = line.choice.parts;
    }
    if (line.times) {
      row["separate_ms"] = 1e3 * line.times->separate_seconds;
      row["fused_ms"] = 1e3 * line.times->fused_seconds;
    }
    rows.push_back(std::move(row));
  }
  store.put(decode_name_of(key), rows);
}

}  // namespace heddle
