#include "parallel/choice_tables.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "fused/all_reduce_norm/all_reduce_norm.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

constexpr int kUnlimited = std::numeric_limits<int>::max();
constexpr double kFasterByOnePercent = 0.99;

std::string sums_name_of(const SplitKey& key) {
  return "sums." + name_of(key);
}

SumForm form_of(const SumTable& table, int num_tokens) {
  const auto line = std::ranges::find_if(table, [&](const SumLine& l) { return num_tokens <= l.up_to_tokens; });
  return line == table.end() ? SumForm::of_mode : line->form;
}

// Behind the lines of smaller steps; one line for sizes that choose alike.
void add_line(SumTable& table, const SumLine& line) {
  if (!table.empty() && table.back().form == line.form && table.back().unsharded == line.unsharded) table.pop_back();
  table.push_back(line);
}

std::optional<SumForm> form_in(const nlohmann::json& row, const char* field) {
  if (!row.contains(field) || !row[field].is_string()) return std::nullopt;
  const std::string name = row[field].get<std::string>();
  for (const SumForm form : {SumForm::separate, SumForm::fused, SumForm::sharded})
    if (name_of(form) == name) return form;
  return std::nullopt;
}

}  // namespace

std::string_view name_of(SumForm form) {
  switch (form) {
    case SumForm::of_mode:
      return "as the mode does";
    case SumForm::separate:
      return "separate";
    case SumForm::fused:
      return "fused";
    case SumForm::sharded:
      return "sharded";
  }
  return "?";
}

StepChoices choices_for(const ChoiceTables& tables, int num_tokens, std::size_t bytes_per_token) {
  StepChoices choices;
  choices.sums = form_of(tables.forms, num_tokens);
  if (choices.sums == SumForm::sharded || choices.sums == SumForm::of_mode) {  // no other gathers rows
    choices.qkv_gather = gather_for(tables.qkv_gather, num_tokens);
    choices.gate_up_gather = gather_for(tables.gate_up_gather, num_tokens);
  }
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

SumTable choose_sums(const std::vector<SumSample>& samples) {
  require(!samples.empty(), "no measured step");
  SumTable table;
  for (const SumSample& sample : samples) {
    SumLine line{.up_to_tokens = sample.tokens, .form = SumForm::separate};
    double seconds = sample.separate_seconds;
    const auto is_faster = [&](double other) {
      if (other > kFasterByOnePercent * seconds) return false;
      seconds = other;
      return true;
    };
    if (is_faster(sample.fused_seconds)) line.form = SumForm::fused;
    if (sample.sharded_seconds && is_faster(*sample.sharded_seconds))
      line = {.up_to_tokens = sample.tokens, .form = SumForm::sharded, .unsharded = line.form};
    add_line(table, line);
  }
  table.back().up_to_tokens = kUnlimited;
  return table;
}

SumTable unsharded(const SumTable& table) {
  SumTable lines;
  for (const SumLine& line : table)
    add_line(lines, {.up_to_tokens = line.up_to_tokens, .form = line.unsharded.value_or(line.form)});
  return lines;
}

// Of a step's rows: 64 of 8192, up to which Heddle's all-reduce and a norm are faster on two H200s than both in one.
constexpr std::int64_t kMostSeparateElements = 64 * 8192;

ModeChoice choose_mode(const TunedModes& tuned, const SplitKey& key) {
  const bool on_gpus = key.device == DeviceKind::cuda;
  const bool can_fuse = key.hidden > 0 && AllReduceNorm::takes_rows_of(key.hidden, key.device);
  if (on_gpus && can_fuse && !tuned.sums && (!tuned.split || tuned.split->kind == SplitKind::none))
    return {.mode = TpMode::fused,
            .sums = {{.up_to_tokens = static_cast<int>(kMostSeparateElements / key.hidden), .form = SumForm::separate},
                     {.up_to_tokens = kUnlimited, .form = SumForm::fused}}};
  ModeChoice choice{.mode = on_gpus ? TpMode::symmetric : TpMode::standard,
                    .sums = tuned.sums.value_or(SumTable{{.form = SumForm::separate}})};
  const auto has = [&](SumForm form) {
    return std::ranges::find(choice.sums, form, &SumLine::form) != choice.sums.end();
  };
  const bool splits = tuned.split && tuned.split->kind != SplitKind::none;
  if (has(SumForm::sharded) && (!splits || form_of(choice.sums, tuned.split->min_tokens) == SumForm::sharded)) {
    choice.mode = TpMode::sequence;
  } else if (splits) {
    choice.mode = TpMode::weave;
    choice.split = *tuned.split;
    choice.sums = unsharded(choice.sums);
  } else if (has(SumForm::fused)) {
    choice.mode = TpMode::fused;
  }
  return choice;
}

SumTable untuned_sums(TpMode mode, DeviceKind device) {
  constexpr int kSmallStep = 2047;
  if (mode != TpMode::sequence || device != DeviceKind::cuda) return {};
  return {{.up_to_tokens = kSmallStep, .form = SumForm::fused},
          {.form = SumForm::sharded, .unsharded = SumForm::fused}};
}

std::optional<SumTable> tuned_sums(const TunedStore& store, const SplitKey& key) {
  const auto value = store.value(sums_name_of(key));
  if (!value || !value->is_array() || value->empty()) return std::nullopt;
  SumTable table;
  for (const nlohmann::json& row : *value) {
    if (!row.is_object()) return std::nullopt;
    const std::optional<SumForm> form = form_in(row, "form"), rather = form_in(row, "unsharded");
    if (!form || rather.has_value() != (form == SumForm::sharded)) return std::nullopt;
    const nlohmann::json limit = row.value("up_to_tokens", nlohmann::json(kUnlimited));
    if (!limit.is_number_unsigned() && !limit.is_number_integer()) return std::nullopt;
    const auto tokens = limit.get<std::int64_t>();
    if (tokens < 1 || tokens > kUnlimited) return std::nullopt;
    if (!table.empty() && tokens <= table.back().up_to_tokens) return std::nullopt;
    table.push_back({.up_to_tokens = static_cast<int>(tokens), .form = *form, .unsharded = rather});
  }
  if (table.back().up_to_tokens != kUnlimited) return std::nullopt;
  return table;
}

void put_tuned_sums(TunedStore& store, const SplitKey& key, const SumTable& table) {
  nlohmann::json rows = nlohmann::json::array();
  for (const SumLine& line : table) {
    nlohmann::json row{{"form", name_of(line.form)}};
    if (line.unsharded) row["unsharded"] = name_of(*line.unsharded);
    if (line.up_to_tokens != kUnlimited) row["up_to_tokens"] = line.up_to_tokens;
    rows.push_back(std::move(row));
  }
  store.put(sums_name_of(key), rows);
}

}  // namespace heddle
