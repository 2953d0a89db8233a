// Charts as SVG files: what a benchmark of a paper's figure leaves beside its record.
#pragma once

#include <string>
#include <vector>

namespace heddle {

struct ChartPoint {
  double x, y;
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  // joined in this order
};

// Both axes are logarithmic; points that are not positive are left out.
struct SvgChart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;
};

std::string svg_of(const SvgChart& chart);

struct BarGroup {
  std::string name;
  std::vector<double> values;  // one for each series, none negative
};

// Bars beside each other, from zero on a linear axis.
struct SvgBars {
  std::string title, y_label;
  std::vector<std::string> series;
  std::vector<BarGroup> groups;
};

std::string svg_of(const SvgBars& bars);

}  // namespace heddle
