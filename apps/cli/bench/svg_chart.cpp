#include "cli/bench/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

namespace heddle {
namespace {

constexpr double kLeft = 80, kTop = 50, kPlotWidth = 520, kPlotHeight = 340, kLegendWidth = 240, kBelow = 60;
constexpr std::string_view kColours[] = {"#1b6ca8", "#d1495b", "#2a9d4a", "#8e5ea2", "#c77f1a", "#444444"};

// The powers of `base` around the values, as exponents.
struct LogAxis {
  double base, from, to;

  double place(double value) const { return (std::log(value) / std::log(base) - from) / (to - from); }
};

template <class Value>
LogAxis axis_of(const SvgChart& chart, double base, const Value& value) {
  double least = INFINITY, most = -INFINITY;
  for (const ChartSeries& series : chart.series)
    for (const ChartPoint& point : series.points)
      if (point.x > 0 && point.y > 0) {
        least = std::min(least, std::log(value(point)) / std::log(base));
        most = std::max(most, std::log(value(point)) / std::log(base));
      }
  if (least > most) return {base, 0, 1};
  const double from = std::floor(least + 1e-9), to = std::ceil(most - 1e-9);
  return {base, from, to > from ? to : from + 1};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string svg_of(const SvgChart& chart) {
  const LogAxis x = axis_of(chart, 2, [](const ChartPoint& point) { return point.x; });
  const LogAxis y = axis_of(chart, 10, [](const ChartPoint& point) { return point.y; });
  const auto at_x = [&](double value) { return kLeft + x.place(value) * kPlotWidth; };
  const auto at_y = [&](double value) { return kTop + (1 - y.place(value)) * kPlotHeight; };
  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
                 "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                 kLeft + kPlotWidth + kLegendWidth, kTop + kPlotHeight + kBelow);
  fmt::format_to(out, "<text x=\"{}\" y=\"24\" font-size=\"15\">{}</text>\n", kLeft, escaped(chart.title));
  const auto line = [&](double x1, double y1, double x2, double y2) {
    fmt::format_to(out, "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#cccccc\"/>\n", x1, y1,
                   x2, y2);
  };
  for (double power = x.from; power <= x.to; ++power) {
    const double value = std::pow(x.base, power);
    line(at_x(value), kTop, at_x(value), kTop + kPlotHeight);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n", at_x(value),
                   kTop + kPlotHeight + 18, value);
  }
  for (double power = y.from; power <= y.to; ++power) {
    const double value = std::pow(y.base, power);
    line(kLeft, at_y(value), kLeft + kPlotWidth, at_y(value));
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n", kLeft - 6, at_y(value) + 4,
                   value);
  }
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", kLeft + kPlotWidth / 2,
                 kTop + kPlotHeight + 42, escaped(chart.x_label));
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\">{}</text>\n", kLeft - 70, kTop - 10, escaped(chart.y_label));
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const std::string_view colour = kColours[i % std::size(kColours)];
    std::string points;
    for (const ChartPoint& point : chart.series[i].points) {
      if (point.x <= 0 || point.y <= 0) continue;
      points += fmt::format("{:.1f},{:.1f} ", at_x(point.x), at_y(point.y));
      fmt::format_to(out, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", at_x(point.x), at_y(point.y),
                     colour);
    }
    fmt::format_to(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points, colour);
    const double legend = kTop + 18 * static_cast<double>(i);
    fmt::format_to(out, "<rect x=\"{}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                   kLeft + kPlotWidth + 16, legend, colour);
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\">{}</text>\n", kLeft + kPlotWidth + 34, legend + 11,
                   escaped(chart.series[i].name));
  }
  return svg + "</svg>\n";
}

}  // namespace heddle
