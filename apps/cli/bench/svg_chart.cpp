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

std::string svg_head(const std::string& title, const std::string& y_label) {
  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
                 "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                 kLeft + kPlotWidth + kLegendWidth, kTop + kPlotHeight + kBelow);
  fmt::format_to(out, "<text x=\"{}\" y=\"24\" font-size=\"15\">{}</text>\n", kLeft, escaped(title));
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\">{}</text>\n", kLeft - 70, kTop - 10, escaped(y_label));
  return svg;
}

std::string svg_line(double x1, double y1, double x2, double y2) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#cccccc\"/>\n", x1, y1, x2,
                     y2);
}

// Beside an axis: left of it, or below.
std::string svg_label(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(text));
}

std::string_view colour_of(std::size_t series) {
  return kColours[series % std::size(kColours)];
}

std::string legend_of(std::size_t series, std::string_view name) {
  const double y = kTop + 18 * static_cast<double>(series);
  return fmt::format(
      "<rect x=\"{}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n<text x=\"{}\" y=\"{:.1f}\">{}</text>\n",
      kLeft + kPlotWidth + 16, y, colour_of(series), kLeft + kPlotWidth + 34, y + 11, escaped(name));
}

// The smallest of 1, 2, 5, 10, ... that is not below `value`.
double round_above(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double digit : {1, 2, 5})
    if (digit * power >= value) return digit * power;
  return 10 * power;
}

}  // namespace

std::string svg_of(const SvgChart& chart) {
  const LogAxis x = axis_of(chart, 2, [](const ChartPoint& point) { return point.x; });
  const LogAxis y = axis_of(chart, 10, [](const ChartPoint& point) { return point.y; });
  const auto at_x = [&](double value) { return kLeft + x.place(value) * kPlotWidth; };
  const auto at_y = [&](double value) { return kTop + (1 - y.place(value)) * kPlotHeight; };
  std::string svg = svg_head(chart.title, chart.y_label);
  const auto out = std::back_inserter(svg);
  for (double power = x.from; power <= x.to; ++power) {
    const double at = at_x(std::pow(x.base, power));
    svg += svg_line(at, kTop, at, kTop + kPlotHeight);
    svg += svg_label(at, kTop + kPlotHeight + 18, "middle", fmt::format("{:g}", std::pow(x.base, power)));
  }
  for (double power = y.from; power <= y.to; ++power) {
    const double at = at_y(std::pow(y.base, power));
    svg += svg_line(kLeft, at, kLeft + kPlotWidth, at);
    svg += svg_label(kLeft - 6, at + 4, "end", fmt::format("{:g}", std::pow(y.base, power)));
  }
  svg += svg_label(kLeft + kPlotWidth / 2, kTop + kPlotHeight + 42, "middle", chart.x_label);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const std::string_view colour = colour_of(i);
    std::string points;
    for (const ChartPoint& point : chart.series[i].points) {
      if (point.x <= 0 || point.y <= 0) continue;
      points += fmt::format("{:.1f},{:.1f} ", at_x(point.x), at_y(point.y));
      fmt::format_to(out, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", at_x(point.x), at_y(point.y),
                     colour);
    }
    fmt::format_to(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points, colour);
    svg += legend_of(i, chart.series[i].name);
  }
  return svg + "</svg>\n";
}

std::string svg_of(const SvgBars& bars) {
  double most = 0;
  for (const BarGroup& group : bars.groups)
    for (const double value : group.values) most = std::max(most, value);
  const double top = most > 0 ? round_above(most) : 1;
  const auto at_y = [&](double value) { return kTop + (1 - value / top) * kPlotHeight; };
  std::string svg = svg_head(bars.title, bars.y_label);
  constexpr int kTicks = 5;
  for (int tick = 0; tick <= kTicks; ++tick) {
    const double value = top * tick / kTicks;
    svg += svg_line(kLeft, at_y(value), kLeft + kPlotWidth, at_y(value));
    svg += svg_label(kLeft - 6, at_y(value) + 4, "end", fmt::format("{:g}", value));
  }
  const double group_width = kPlotWidth / static_cast<double>(std::max<std::size_t>(1, bars.groups.size()));
  const double bar_width = group_width / static_cast<double>(bars.series.size() + 1);
  for (std::size_t i = 0; i < bars.groups.size(); ++i) {
    const double left = kLeft + group_width * static_cast<double>(i);
    for (std::size_t k = 0; k < bars.groups[i].values.size(); ++k) {
      const double y = at_y(bars.groups[i].values[k]);
      svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                         left + bar_width * (static_cast<double>(k) + 0.5), y, bar_width, at_y(0) - y, colour_of(k));
    }
    svg += svg_label(left + group_width / 2, kTop + kPlotHeight + 18, "middle", bars.groups[i].name);
  }
  for (std::size_t k = 0; k < bars.series.size(); ++k) svg += legend_of(k, bars.series[k]);
  return svg + "</svg>\n";
}

}  // namespace heddle
