#include "cli/bench/block_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/bench/svg_chart.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

double microseconds(const ordered_json& way) {
  return 1e6 * way["seconds"]["median"].get<double>();
}

// The fastest of the ways whose `field` is `value`; 0: there is none.
double fastest(const ordered_json& ways, const char* field, const ordered_json& value) {
  double least = 0;
  for (const ordered_json& way : ways) {
    if (!way.contains(field) || way[field] != value) continue;
    const double us = microseconds(way);
    if (least == 0 || us < least) least = us;
  }
  return least;
}

// Every fused form has a cluster; the separate operators, which are the first way, have none.
double fastest_fused(const ordered_json& ways) {
  double least = 0;
  for (const ordered_json& way : ways)
    if (way.contains("cluster") && (least == 0 || microseconds(way) < least)) least = microseconds(way);
  return least;
}

std::string tokens_text(const ordered_json& context) {
  return fmt::format("{} tokens", context["context"].get<int>());
}

std::string title_of(const ordered_json& record, const char* words) {
  const std::string shape = record.contains("shape") ? record["shape"].get<std::string>() + ", " : "";
  return fmt::format("{}: {}batch {}, {}", words, shape, record["batch"].get<int>(),
                     record["gpu"]["name"].get<std::string>());
}

// Figures 9 and 18.
std::string block_bars(const ordered_json& record) {
  SvgBars bars{.title = title_of(record, "Attention block"),
               .y_label = "microseconds a layer",
               .series = {"separate operators", "fastest fused form", "roofline"},
               .groups = {}};
  for (const ordered_json& context : record["contexts"])
    bars.groups.push_back({tokens_text(context),
                           {microseconds(context["ways"][0]), fastest_fused(context["ways"]),
                            1e6 * context["floor_seconds"].get<double>()}});
  return svg_of(bars);
}

// Figure 13.
std::string exchange_bars(const ordered_json& record) {
  SvgBars bars{.title = title_of(record, "With and without DSMEM"),
               .y_label = "microseconds a layer",
               .series = {"separate operators", "clusters, with DSMEM", "clusters, through global memory"},
               .groups = {}};
  for (const ordered_json& context : record["contexts"])
    bars.groups.push_back({tokens_text(context),
                           {microseconds(context["ways"][0]), fastest(context["ways"], "exchange", "on chip"),
                            fastest(context["ways"], "exchange", "off chip")}});
  return svg_of(bars);
}

// Figure 11: a line for each number of heads and context.
std::string cluster_lines(const ordered_json& record) {
  SvgChart chart{.title = title_of(record, "Cluster size and heads"),
                 .x_label = "blocks of a cluster",
                 .y_label = "microseconds a layer",
                 .series = {}};
  for (const ordered_json& context : record["contexts"]) {
    ChartSeries& series = chart.series.emplace_back(
        ChartSeries{fmt::format("{}, {}", context["shape"].get<std::string>(), tokens_text(context)), {}});
    for (const ordered_json& way : context["ways"])
      if (way.contains("cluster")) series.points.push_back({way["cluster"].get<double>(), microseconds(way)});
  }
  return svg_of(chart);
}

// Figure 20: a line for each split in clusters of each size.
std::string split_lines(const ordered_json& record) {
  SvgChart chart{.title = title_of(record, "SplitToken and SplitHead"),
                 .x_label = "tokens in the cache",
                 .y_label = "microseconds a layer",
                 .series = {}};
  std::map<std::string, std::map<double, double>> least;  // by series and context
  for (const ordered_json& context : record["contexts"])
    for (const ordered_json& way : context["ways"]) {
      if (!way.contains("split")) continue;
      const char* const split = way["split"] == "head" ? "SplitHead" : "SplitToken";
      double& us =
          least[fmt::format("{}, clusters of {}", split, way["cluster"].get<int>())][context["context"].get<double>()];
      if (us == 0 || microseconds(way) < us) us = microseconds(way);
    }
  for (const auto& [name, points] : least) {
    ChartSeries& series = chart.series.emplace_back(ChartSeries{name, {}});
    for (const auto& [x, y] : points) series.points.push_back({x, y});
  }
  return svg_of(chart);
}

}  // namespace

const std::vector<BlockFigure>& block_figures() {
  static const std::vector<BlockFigure> kFigures{
      {9, "the block alone", {}, true, 1, {1024, 4096, 16384}},
      {11,
       "cluster size by 32, 64 and 128 heads of 128, hidden size 4096",
       {"32 heads", "64 heads", "128 heads"},
       false,
       1,
       {4096, 16384}},
      {13, "with and without distributed shared memory", {}, false, 1, {1024, 4096, 16384}},
      {18, "the block alone with 16 sequences", {}, true, 16, {1024, 4096, 16384}},
      {20, "SplitToken beside SplitHead, in clusters of 2, 4 and 8", {}, false, 1, {1024, 4096, 16384}}};
  return kFigures;
}

const BlockFigure* block_figure(int number) {
  const auto found = std::ranges::find(block_figures(), number, &BlockFigure::number);
  return found == block_figures().end() ? nullptr : &*found;
}

std::string svg_of_block(const ordered_json& record) {
  switch (record.value("figure", 9)) {
    case 11:
      return cluster_lines(record);
    case 13:
      return exchange_bars(record);
    case 20:
      return split_lines(record);
    default:
      return block_bars(record);
  }
}

}  // namespace heddle
