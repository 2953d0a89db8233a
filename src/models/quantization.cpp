#include "models/quantization.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/printable.h"

namespace heddle {
namespace {

constexpr std::string_view kAdvice =
    "is not supported yet. Give the model that was quantised, in bfloat16 or float16; the model's card on Hugging Face "
    "names it";

struct Method {
  std::string_view quant_method;  // in config.json
  std::string_view name;
};

constexpr Method kMethods[] = {
    {"gptq", "GPTQ"},
    {"awq", "AWQ"},
    {"fp8", "fp8"},
    {"fbgemm_fp8", "fp8 (FBGEMM)"},
    {"compressed-tensors", "compressed-tensors"},
    {"bitsandbytes", "bitsandbytes"},
    {"mxfp4", "MXFP4"},
    {"modelopt", "ModelOpt"},
    {"torchao", "torchao"},
    {"hqq", "HQQ"},
    {"aqlm", "AQLM"},
    {"quanto", "Quanto"},
    {"exl2", "EXL2"},
};

std::optional<std::string> text_in(const nlohmann::json& object, std::string_view key) {
  constexpr std::size_t kMaxShown = 60;
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return printable(found->get_ref<const std::string&>(), kMaxShown);
}

std::string name_of(std::string_view quant_method) {
  const auto* found = std::ranges::find(kMethods, quant_method, &Method::quant_method);
  return std::string(found == std::end(kMethods) ? quant_method : found->name);
}

// "4 bits", "float8"; empty if it says neither.
std::string width_of(const nlohmann::json& object) {
  if (!object.is_object()) return {};
  for (const std::string_view key : {"bits", "w_bit"})
    if (const auto found = object.find(key); found != object.end() && found->is_number_integer())
      return fmt::format("{} bits", found->get<std::int64_t>());
  for (const auto& [key, width] : {std::pair{"load_in_4bit", "4 bits"}, std::pair{"load_in_8bit", "8 bits"}})
    if (object.value(key, nlohmann::json()) == true) return width;
  return text_in(object, "format").value_or("");
}

}  // namespace

std::optional<std::string> quantization_in(const JsonField& config) {
  const bool mlx = config.find("quantization").has_value();  // which alone writes that field
  const char* const unnamed = mlx ? "MLX" : "an unnamed method";
  for (const std::string_view key : {"quantization_config", "compression_config", "quantization"}) {
    const auto field = config.find(key);
    if (!field) continue;
    const std::string method = name_of(text_in(field->value(), "quant_method").value_or(unnamed));
    const std::string width = width_of(field->value());
    return fmt::format("{}: quantisation by {}{} {}", field->path(), method,
                       width.empty() ? "" : fmt::format(" ({})", width), kAdvice);
  }
  return std::nullopt;
}

std::optional<std::string> quantization_in(const TensorSource& source) {
  struct Suffix {
    std::string_view ending, name;
  };
  constexpr Suffix kSuffixes[] = {{".qweight", "GPTQ or AWQ"},
                                  {".weight_packed", "compressed-tensors"},
                                  {".weight_scale_inv", "fp8"},
                                  {".scales", "MLX"},  // GPTQ and AWQ have .qweight before it
                                  {".quant_state.bitsandbytes__nf4", "bitsandbytes"}};
  const auto sentence = [&](std::string_view name, std::string_view method) {
    return fmt::format("{}: tensor {}: quantisation by {} {}", source.find(name)->file, quoted_name(name), method,
                       kAdvice);
  };
  for (const std::string_view name : source.names())
    for (const Suffix& suffix : kSuffixes)
      if (name.ends_with(suffix.ending)) return sentence(name, suffix.name);
  for (const std::string_view name : source.names())  // fp8 whose scales have names of their own, or none
    if (source.find(name)->dtype.name.starts_with("F8_")) return sentence(name, "fp8");
  return std::nullopt;
}

}  // namespace heddle
