#include "parallel/choice_tables.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

constexpr int kUnlimited = std::numeric_limits<int>::max();
constexpr double kFasterByOnePercent = 0.99;

std::string fused_name_of(const SplitKey& key) {
  return "fused_sums." + name_of(key);
}

}  // namespace

StepChoices choices_for(const ChoiceTables& tables, int num_tokens, std::size_t bytes_per_token) {
  StepChoices choices;
  const auto line =
      std::ranges::find_if(tables.fused, [&](const FusedLine& l) { return num_tokens <= l.up_to_tokens; });
  if (line != tables.fused.end()) choices.fused_sums = line->fused;
  if (tables.sums.empty()) return choices;
  const Choice& sum = choose(tables.sums, static_cast<std::size_t>(num_tokens) * bytes_per_token);
  choices.sum_algorithm = static_cast<std::int16_t>(sum.algorithm);
  choices.sum_blocks = static_cast<std::int16_t>(sum.blocks);
  choices.sum_threads = static_cast<std::int16_t>(sum.threads);
  return choices;
}

std::optional<Choice> sum_choice(const StepChoices& choices) {
  if (choices.sum_algorithm == StepChoices::kByDefault) return std::nullopt;
  require(choices.sum_algorithm >= 0 && choices.sum_algorithm <= static_cast<int>(Algorithm::put),
          "a step's sums by algorithm {}", choices.sum_algorithm);
  return Choice{.algorithm = static_cast<Algorithm>(choices.sum_algorithm),
                .blocks = choices.sum_blocks,
                .threads = choices.sum_threads};
}

FusedTable choose_fused(const std::vector<FusedSample>& samples) {
  require(!samples.empty(), "no measured step");
  FusedTable table;
  for (const FusedSample& sample : samples) {
    const bool fused = sample.fused_seconds <= kFasterByOnePercent * sample.separate_seconds;
    if (!table.empty() && table.back().fused == fused) table.pop_back();
    table.push_back({.up_to_tokens = sample.tokens, .fused = fused});
  }
  table.back().up_to_tokens = kUnlimited;
  return table;
}

ModeChoice choose_mode(const TunedModes& tuned, DeviceKind device) {
  ModeChoice choice{.mode = device == DeviceKind::cuda ? TpMode::symmetric : TpMode::standard,
                    .fused = tuned.fused.value_or(FusedTable{{.fused = false}})};
  if (tuned.split && tuned.split->kind != SplitKind::none) {
    choice.mode = TpMode::weave;
    choice.split = *tuned.split;
  } else if (std::ranges::any_of(choice.fused, &FusedLine::fused)) {
    choice.mode = TpMode::fused;
  }
  return choice;
}

std::optional<FusedTable> tuned_fused(const TunedStore& store, const SplitKey& key) {
  const auto value = store.value(fused_name_of(key));
  if (!value || !value->is_array() || value->empty()) return std::nullopt;
  FusedTable table;
  for (const nlohmann::json& row : *value) {
    if (!row.is_object() || !row.contains("fused") || !row["fused"].is_boolean()) return std::nullopt;
    const nlohmann::json limit = row.value("up_to_tokens", nlohmann::json(kUnlimited));
    if (!limit.is_number_unsigned() && !limit.is_number_integer()) return std::nullopt;
    const auto tokens = limit.get<std::int64_t>();
    if (tokens < 1 || tokens > kUnlimited) return std::nullopt;
    if (!table.empty() && tokens <= table.back().up_to_tokens) return std::nullopt;
    table.push_back({.up_to_tokens = static_cast<int>(tokens), .fused = row["fused"].get<bool>()});
  }
  if (table.back().up_to_tokens != kUnlimited) return std::nullopt;
  return table;
}

void put_tuned_fused(TunedStore& store, const SplitKey& key, const FusedTable& table) {
  nlohmann::json rows = nlohmann::json::array();
  for (const FusedLine& line : table) {
    nlohmann::json row{{"fused", line.fused}};
    if (line.up_to_tokens != kUnlimited) row["up_to_tokens"] = line.up_to_tokens;
    rows.push_back(std::move(row));
  }
  store.put(fused_name_of(key), rows);
}

}  // namespace heddle
