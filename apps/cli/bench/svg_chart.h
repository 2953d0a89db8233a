// A line chart as an SVG file: what a benchmark of a paper's figure leaves beside its record.
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

}  // namespace heddle
