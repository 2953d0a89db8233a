#include "engine/model_tokenizer.h"

#include "engine/synthetic_tokenizer.h"
#include "weights/synthetic_model.h"

namespace heddle {

Tokenizer load_model_tokenizer(const std::string& model) {
  const auto synthetic = parse_synthetic_name(model);
  if (!synthetic) return Tokenizer::load(model);
  const TokenizerFiles files = synthetic_tokenizer(*synthetic->shape);
  return Tokenizer::from_json(files.tokenizer_json, files.tokenizer_config_json, model);
}

}  // namespace heddle
