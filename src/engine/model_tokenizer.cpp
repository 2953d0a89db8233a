#include "engine/model_tokenizer.h"

#include <filesystem>

#include "base/error.h"
#include "engine/synthetic_tokenizer.h"
#include "weights/model_folder.h"
#include "weights/other_formats.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

bool is_there(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

}  // namespace

Tokenizer load_model_tokenizer(const std::string& model) {
  const auto synthetic = parse_synthetic_name(model);
  if (!synthetic) {
    const std::filesystem::path folder = model_folder(model);
    if (!is_there(folder / "config.json") && !is_there(folder / "tokenizer.json"))
      if (const auto what = what_folder(folder)) throw InputError(*what);
    return Tokenizer::load(folder);
  }
  const TokenizerFiles files = synthetic_tokenizer(*synthetic->shape);
  return Tokenizer::from_json(files.tokenizer_json, files.tokenizer_config_json, model);
}

std::optional<Tokenizer> find_model_tokenizer(const std::string& model) {
  const bool found = parse_synthetic_name(model) || is_there(model_folder(model) / "tokenizer.json");
  return found ? std::optional(load_model_tokenizer(model)) : std::nullopt;
}

}  // namespace heddle
