#include "wafer/cost/basis.h"

#include <string_view>
#include <utility>

namespace heddle {

std::string text_of(Bases bases) {
  using enum Basis;
  constexpr std::pair<Basis, std::string_view> kNames[] = {{simulated, "simulated"},   {counted, "counted"},
                                                           {analytical, "analytical"}, {fitted, "fitted"},
                                                           {published, "published"},   {held_out, "held out"}};
  std::string text;
  for (const auto& [basis, name] : kNames) {
    if (!bases.has(basis)) continue;
    if (!text.empty()) text += " + ";
    text += name;
  }
  return text;
}

}  // namespace heddle
