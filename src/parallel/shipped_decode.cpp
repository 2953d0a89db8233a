#include "parallel/shipped_decode.h"

#include <nlohmann/json.hpp>

namespace heddle {

std::optional<ShippedDecode> shipped_decode(std::string_view gpu, const SplitKey& key, std::string_view text) {
  using nlohmann::json;
  const json all = json::parse(text, nullptr, false);
  if (!all.is_object() || !all.contains(gpu) || !all[gpu].is_object()) return std::nullopt;
  const json& of_gpu = all[gpu];
  const json models = of_gpu.value("models", json::object()), from = of_gpu.value("from", json(""));
  const std::string name = shape_name_of(key);
  if (!models.is_object() || !models.contains(name) || !from.is_string()) return std::nullopt;
  std::optional<DecodeTable> table = decode_table_in(models[name]);
  if (!table) return std::nullopt;
  return ShippedDecode{.table = std::move(*table), .from = from.get<std::string>()};
}

}  // namespace heddle
