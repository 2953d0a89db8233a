#include "engine/model_tokenizer.h"

#include <filesystem>

#include "engine/synthetic_tokenizer.h"
#include "weights/synthetic_model.h"

namespace heddle {

Tokenizer load_model_tokenizer(const std::string& model) {
  const auto synthetic = parse_synthetic_name(model);
  if (!synthetic) return Tokenizer::load(model);
  const TokenizerFiles files = synthetic_tokenizer(*synthetic->shape);
  return Tokenizer::from_json(files.tokenizer_json, files.tokenizer_config_json, model);
}

std::optional<Tokenizer> find_model_tokenizer(const std::string& model) {
  std::error_code none;
  const bool exists =
      parse_synthetic_name(model) || std::filesystem::exists(std::filesystem::path(model) / "tokenizer.json", none);
  return exists ? std::optional(load_model_tokenizer(model)) : std::nullopt;
}

}  // namespace heddle
