#include "cli/sequence_rates.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/number_option.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kLargestFile = std::size_t{16} << 20;
constexpr NumberRange<double> kRate{.min = 1e-6, .max = 1e9};

// A rate by the name that files and records have, whose unit is so much of the rate's own.
struct NamedRate {
  const char* name;
  double SequenceRates::*rate;
  double unit;
};
constexpr NamedRate kNamedRates[] = {{"attention_tflops", &SequenceRates::attention_flops, 1e12},
                                     {"memory_gbps", &SequenceRates::memory_bytes, 1e9},
                                     {"gpu_link_gbps", &SequenceRates::gpu_link_bytes, 1e9},
                                     {"machine_link_gbps", &SequenceRates::machine_link_bytes, 1e9},
                                     {"call_us", &SequenceRates::call_seconds, 1e-6},
                                     {"local_us", &SequenceRates::local_seconds, 1e-6},
                                     {"remote_us", &SequenceRates::remote_seconds, 1e-6}};
constexpr const char* kSource = "source";

int head_dim_of(const std::string& text, const JsonField& field) {
  for (int head_dim = 1; head_dim <= 256; ++head_dim)
    if (text == std::to_string(head_dim)) return head_dim;
  field.fail("is of no head dimension from 1 to 256");
}

// Returns whether there is one of attention.
bool read_rates(const JsonField& object, SequenceRates& rates, std::map<int, double>& flops) {
  bool has_attention = false;
  for (const auto& [key, field] : object.members()) {
    if (key == kSource) continue;
    const auto named = std::ranges::find(kNamedRates, key, &NamedRate::name);
    if (named == std::end(kNamedRates)) {
      std::vector<const char*> names;
      names.reserve(std::size(kNamedRates));
      for (const NamedRate& of : kNamedRates) names.push_back(of.name);
      field.fail(fmt::format("is no rate; there are {}", fmt::join(names, ", ")));
    }
    const bool by_head_dim = named->rate == &SequenceRates::attention_flops && field.is_object();
    if (named->rate == &SequenceRates::attention_flops) {
      has_attention = true;
      flops.clear();
    }
    if (!by_head_dim) {
      rates.*named->rate = field.number(kRate.min, kRate.max) * named->unit;
      continue;
    }
    for (const auto& [head_dim, of] : field.members())
      flops[head_dim_of(head_dim, of)] = of.number(kRate.min, kRate.max) * named->unit;
  }
  return has_attention;
}

void read_pieces(const JsonField& record, std::map<int, double>& flops) {
  flops.clear();
  std::map<int, std::int64_t> longest;
  for (const JsonField& row : record.at("rows").elements()) {
    if (row.at("case").text() != "1 piece, 1 call") continue;
    const int head_dim = static_cast<int>(row.at("head_dim").integer(1, 256));
    const std::int64_t tokens = row.at("tokens").integer(1, std::int64_t{1} << 40);
    if (tokens < longest[head_dim]) continue;
    longest[head_dim] = tokens;
    flops[head_dim] = row.at("tflops").number(kRate.min, kRate.max) * 1e12;
  }
  if (flops.empty()) record.fail("has no layer in 1 piece and 1 call");
}

}  // namespace

void add_sequence_rate_options(CLI::App& command, SequenceRateOptions& options) {
  command
      .add_option_function<std::vector<std::string>>(
          "--rates", [&options](const std::vector<std::string>& files) { options.files = files; },
          "Measured rates as JSON, or a record that has some (figure 12 of bench sequence-attention); default: the "
          "StreamFusion paper's")
      ->type_name("FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_number_option<double>(command, "--tflops", options.tflops, "TFLOP/s of attention of a GPU; default 200", kRate);
  add_number_option<double>(command, "--machine-gbps", options.machine_gbps,
                            "GB/s out of a machine, and into it; default 50", kRate);
  add_number_option<double>(command, "--gpu-gbps", options.gpu_gbps,
                            "GB/s from GPU to GPU inside a machine; default 250", kRate);
  add_number_option<double>(command, "--local-us", options.local_us,
                            "Microseconds of a message inside a machine; default 5", kRate);
  add_number_option<double>(command, "--remote-us", options.remote_us,
                            "Microseconds of a message between machines; default 15", kRate);
}

SequenceRateTable::SequenceRateTable(const SequenceRateOptions& options) {
  std::vector<std::string> sources;
  for (const std::string& path : options.files) {
    const nlohmann::json json = parse_json(read_file(path, kLargestFile), path);
    const JsonField file(json, path);
    if (const std::optional<JsonField> rates = file.find("rates")) {
      gives_attention_ |= read_rates(*rates, rates_, flops_);
    } else if (const std::optional<JsonField> figure = file.find("figure")) {
      if (figure->integer(0, 100) != 12) file.fail("has no rates, and is no record of figure 12");
      read_pieces(file, flops_);
      gives_attention_ = true;
    } else {
      gives_attention_ |= read_rates(file, rates_, flops_);
    }
    sources.push_back(path);
  }
  bool has_options = false;
  const auto take = [&](const std::optional<double>& given, double SequenceRates::*rate, double unit) {
    if (!given) return;
    rates_.*rate = *given * unit;
    has_options = true;
  };
  if (options.tflops) flops_.clear();
  take(options.tflops, &SequenceRates::attention_flops, 1e12);
  take(options.machine_gbps, &SequenceRates::machine_link_bytes, 1e9);
  take(options.gpu_gbps, &SequenceRates::gpu_link_bytes, 1e9);
  take(options.local_us, &SequenceRates::local_seconds, 1e-6);
  take(options.remote_us, &SequenceRates::remote_seconds, 1e-6);
  gives_attention_ |= options.tflops.has_value();
  if (sources.empty()) sources.push_back(source_);
  if (has_options) sources.emplace_back("options");
  source_ = fmt::format("{}", fmt::join(sources, ", "));
}

SequenceRates SequenceRateTable::of(int head_dim) const {
  SequenceRates rates = rates_;
  int nearest = 256;
  for (const auto& [of, flops] : flops_) {
    if (std::abs(of - head_dim) > nearest) continue;
    nearest = std::abs(of - head_dim);
    rates.attention_flops = flops;
  }
  return rates;
}

ordered_json SequenceRateTable::json() const {
  ordered_json object{{kSource, source_}};
  for (const NamedRate& named : kNamedRates) object[named.name] = rates_.*named.rate / named.unit;
  if (flops_.empty()) return object;
  ordered_json by_head_dim = ordered_json::object();
  for (const auto& [head_dim, flops] : flops_) by_head_dim[std::to_string(head_dim)] = flops / 1e12;
  object["attention_tflops"] = std::move(by_head_dim);
  return object;
}

}  // namespace heddle
