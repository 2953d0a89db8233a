#include "engine/model_tokenizer.h"

namespace heddle {

Tokenizer load_model_tokenizer(const std::string& model) {
  return Tokenizer::load(model);
}

}  // namespace heddle
