#include "models/unsupported_features.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace heddle {

void UnsupportedFeatures::only(const JsonField& config, std::string_view key,
                               std::initializer_list<nlohmann::json> supported) {
  const auto field = config.find(key);
  if (!field || std::ranges::find(supported, field->value()) != supported.end()) return;
  std::vector<std::string> names;
  for (const nlohmann::json& value : supported) names.push_back(value.dump());
  refuse(*field, names.empty() ? "none" : fmt::format("{}", fmt::join(names, " and ")));
}

void UnsupportedFeatures::refuse(const JsonField& field, std::string_view supported) {
  sentences_.push_back(
      fmt::format("{}: {} is not supported yet, only {}", field.path(), shorten(field.value()), supported));
}

}  // namespace heddle
