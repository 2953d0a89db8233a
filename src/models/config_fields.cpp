#include "models/config_fields.h"

#include <nlohmann/json.hpp>

namespace heddle {

bool is_missing(const JsonField& config, std::string_view key) {
  return !config.value().contains(key);
}

bool flag(const JsonField& config, std::string_view key) {
  const auto field = config.find(key);
  return field && field->boolean();
}

int size_from(const JsonField& field, std::int64_t max) {
  return static_cast<int>(field.integer(1, max));
}

int size_or(const JsonField& config, std::string_view key, std::int64_t max, int otherwise) {
  const auto field = config.find(key);
  return field ? size_from(*field, max) : otherwise;
}

std::vector<std::int32_t> token_ids_of(const JsonField& config, std::string_view key, std::int64_t vocab_size,
                                       std::optional<std::int32_t> missing) {
  std::vector<std::int32_t> ids;
  const auto field = config.find(key);
  if (is_missing(config, key) && missing && *missing < vocab_size) ids.push_back(*missing);
  if (!field) return ids;
  for (const JsonField& id : field->is_array() ? field->elements() : std::vector{*field})
    ids.push_back(static_cast<std::int32_t>(id.integer(0, vocab_size - 1)));
  return ids;
}

bool has_rope_theta(const JsonField& config) {
  if (config.find("rope_theta")) return true;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"})
    if (const auto parameters = config.find(key);
        parameters && parameters->is_object() && parameters->find("rope_theta"))
      return true;
  return false;
}

}  // namespace heddle
