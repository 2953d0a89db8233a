#include "cli/step_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace heddle {
namespace {

constexpr double kLeft = 150, kBarWidth = 640, kRowHeight = 26, kBarHeight = 18, kTop = 44;

struct BarPart {
  std::string_view name, colour;
  double StepShares::*seconds;
};
constexpr std::array<BarPart, 4> kBarParts{{{"compute", "#4878a8", &StepShares::compute},
                                            {"transfer", "#6aa84f", &StepShares::transfer},
                                            {"launch tax", "#e69138", &StepShares::launch},
                                            {"bulk-synchronous tax", "#cc4125", &StepShares::synchronous}}};

// Labels are names of variants and spans; other characters than these would need escapes.
std::string plain_text(std::string_view text) {
  std::string plain;
  for (const char c : text) plain += c == '<' || c == '>' || c == '&' || c == '"' ? '?' : c;
  return plain;
}

std::string rectangle(double x, double y, double width, std::string_view fill, std::string_view title) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>{}</title></rect>\n", x, y,
      width, kBarHeight, fill, title);
}

}  // namespace

std::string step_bars_svg(std::span<const StepShares> all) {
  double longest = 0;
  for (const StepShares& one : all) longest = std::max(longest, one.step_seconds / std::max(1, one.steps));
  const double width = kLeft + kBarWidth + 110, height = kTop + kRowHeight * static_cast<double>(all.size()) + 10;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<defs><pattern id=\"hatch\" "
      "width=\"6\" "
      "height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><line x1=\"0\" y1=\"0\" x2=\"0\" "
      "y2=\"6\" "
      "stroke=\"black\" stroke-width=\"1.5\"/></pattern></defs>\n",
      width, height);
  double x = kLeft;
  const auto legend = [&](std::string_view name, std::string_view fill) {
    svg += rectangle(x, 10, 14, fill, name);
    svg += fmt::format("<text x=\"{:.2f}\" y=\"24\">{}</text>\n", x + 19, name);
    x += 34 + 7.0 * static_cast<double>(name.size());
  };
  for (const BarPart& part : kBarParts) legend(part.name, part.colour);
  legend("of which inter-kernel tax", "url(#hatch)");
  double y = kTop;
  for (const StepShares& one : all) {
    const double steps = std::max(1, one.steps), scale = longest > 0 ? kBarWidth / longest : 0;
    svg += fmt::format("<text x=\"{}\" y=\"{:.2f}\" text-anchor=\"end\">{} rank {}</text>\n", kLeft - 8, y + 13,
                       plain_text(one.label), one.rank);
    x = kLeft;
    for (const BarPart& part : kBarParts) {
      const double seconds = one.*part.seconds / steps;
      svg += rectangle(x, y, seconds * scale, part.colour, fmt::format("{}: {:.1f} us", part.name, seconds * 1e6));
      x += seconds * scale;
    }
    if (one.inter_kernel > 0)
      svg += rectangle(kLeft, y, std::min(one.inter_kernel, one.step_seconds) / steps * scale, "url(#hatch)",
                       fmt::format("inter-kernel tax: {:.1f} us", one.inter_kernel / steps * 1e6));
    svg += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\">{:.1f} us</text>\n", x + 6, y + 13,
                       one.step_seconds / steps * 1e6);
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace heddle
