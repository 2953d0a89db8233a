#include "parallel/tuned_gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "fused/all_gather_linear/all_gather_linear_sm90.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

using Form = GatherChoice::Form;

constexpr int kAllRows = std::numeric_limits<int>::max();
constexpr int kTransferSms[] = {1, 2, 4, 8, 16, 32};

std::string stored_name_of(const GatherKey& key) {
  return fmt::format("all_gather_linear.{}n.{}k.{}.tp{}.{}{}", key.n, key.k, key.dtype, key.ranks,
                     key.device == DeviceKind::cpu ? "cpu" : "cuda", key.shared ? ".shared" : "");
}

std::string name_of(Form form) {
  const std::optional<GatherVariant> variant = gather_variant({.form = form});
  return variant ? std::string(name_of(*variant)) : "bsp";
}

// An integer of `row` within [least, most].
std::optional<std::int64_t> integer_in(const nlohmann::json& row, const char* field, std::int64_t least,
                                       std::int64_t most) {
  if (!row.contains(field) || !row[field].is_number_integer()) return std::nullopt;
  const auto value = row[field].get<std::int64_t>();
  if (value < least || value > most) return std::nullopt;
  return value;
}

std::optional<GatherLine> line_of(const nlohmann::json& row) {
  if (!row.is_object()) return std::nullopt;
  const auto tile = integer_in(row, "tile", -1, std::ssize(kGatherTiles) - 1),
             sms = integer_in(row, "transfer_sms", 1, std::numeric_limits<std::uint8_t>::max()),
             rows = row.contains("up_to_rows") ? integer_in(row, "up_to_rows", 1, kAllRows) : kAllRows;
  if (!tile || !sms || !rows || !row.contains("variant") || !row["variant"].is_string()) return std::nullopt;
  const auto microseconds = [&](const char* field) {
    return row.contains(field) && row[field].is_number() ? row[field].get<double>() : 0.0;
  };
  GatherLine line{.up_to_rows = static_cast<int>(*rows),
                  .choice = {.tile = static_cast<std::int8_t>(*tile), .transfer_sms = static_cast<std::uint8_t>(*sms)},
                  .microseconds = microseconds("microseconds"),
                  .untuned_microseconds = microseconds("untuned_microseconds")};
  for (const Form form : {Form::push, Form::pull, Form::copy, Form::bsp}) {
    if (name_of(form) != row["variant"].get<std::string>()) continue;
    line.choice.form = form;
    return line;
  }
  return std::nullopt;
}

}  // namespace

std::optional<GatherVariant> gather_variant(const GatherChoice& choice) {
  switch (choice.form) {
    case Form::push:
      return GatherVariant::push;
    case Form::pull:
      return GatherVariant::pull;
    case Form::copy:
      return GatherVariant::copy;
    case Form::bsp:
      break;
  }
  return std::nullopt;
}

std::string text_of(const GatherChoice& choice) {
  std::string text = name_of(choice.form);
  if (choice.transfer_sms != GatherChoice{}.transfer_sms) text += fmt::format(", {} SMs", choice.transfer_sms);
  if (choice.tile >= 0) {
    const GatherTile& tile = kGatherTiles[choice.tile];
    text += fmt::format(", tile {} x {}", tile.rows, tile.columns);
  }
  return text;
}

std::vector<GatherChoice> gather_choices(const GatherKey& key, std::int64_t rows) {
  const bool by_tiles = key.device == DeviceKind::cuda && rows > gather_first_rows(true);
  std::vector<GatherChoice> choices;
  for (const Form form : {Form::push, Form::pull, Form::copy, Form::bsp}) {
    if (form == Form::bsp && rows % key.ranks != 0) continue;
    choices.push_back({.form = form});
    if (!by_tiles || form == Form::bsp) continue;
    for (int tile = 0; tile < static_cast<int>(std::size(kGatherTiles)); ++tile)
      if (!key.shared || kGatherTiles[tile].cluster == 1)
        choices.push_back({.form = form, .tile = static_cast<std::int8_t>(tile)});
    if (form != Form::pull) continue;  // the GEMM itself pushes, and copy has copy engines
    for (const int sms : kTransferSms)
      if (sms != GatherChoice{}.transfer_sms)
        choices.push_back({.form = form, .transfer_sms = static_cast<std::uint8_t>(sms)});
  }
  return choices;
}

GatherChoice gather_for(const GatherTable& table, int rows) {
  const auto line = std::ranges::find_if(table, [&](const GatherLine& l) { return rows <= l.up_to_rows; });
  return line == table.end() ? GatherChoice{} : line->choice;
}

GatherTable choose_gathers(const std::vector<GatherSample>& samples) {
  constexpr double kFasterByOnePercent = 0.99;
  require(!samples.empty(), "no measured number of rows");
  GatherTable table;
  for (const GatherSample& sample : samples) {
    require(!sample.times.empty(), "no measured choice for {} rows", sample.rows);
    const GatherTime& untuned = sample.times.front();
    const GatherTime& fastest = *std::ranges::min_element(sample.times, {}, &GatherTime::microseconds);
    const GatherTime& chosen = fastest.microseconds <= kFasterByOnePercent * untuned.microseconds ? fastest : untuned;
    table.push_back({.up_to_rows = sample.rows,
                     .choice = chosen.choice,
                     .microseconds = chosen.microseconds,
                     .untuned_microseconds = untuned.microseconds});
  }
  table.back().up_to_rows = kAllRows;
  return table;
}

std::optional<GatherTable> tuned_gathers(const TunedStore& store, const GatherKey& key) {
  const auto value = store.value(stored_name_of(key));
  if (!value || !value->is_array() || value->empty()) return std::nullopt;
  GatherTable table;
  for (const nlohmann::json& row : *value) {
    const std::optional<GatherLine> line = line_of(row);
    if (!line || (!table.empty() && line->up_to_rows <= table.back().up_to_rows)) return std::nullopt;
    table.push_back(*line);
  }
  if (table.back().up_to_rows != kAllRows) return std::nullopt;
  return table;
}

void put_tuned_gathers(TunedStore& store, const GatherKey& key, const GatherTable& table) {
  nlohmann::json rows = nlohmann::json::array();
  for (const GatherLine& line : table) {
    nlohmann::json row{{"variant", name_of(line.choice.form)},
                       {"tile", line.choice.tile},
                       {"transfer_sms", line.choice.transfer_sms},
                       {"microseconds", line.microseconds},
                       {"untuned_microseconds", line.untuned_microseconds}};
    if (line.up_to_rows != kAllRows) row["up_to_rows"] = line.up_to_rows;
    rows.push_back(std::move(row));
  }
  store.put(stored_name_of(key), rows);
}

}  // namespace heddle
