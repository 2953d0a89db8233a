#include "engine/model_template.h"

#include "engine/synthetic_tokenizer.h"
#include "weights/model_folder.h"
#include "weights/synthetic_model.h"

namespace heddle {

ModelChatTemplate load_model_chat_template(const std::string& model, const ModelChatTemplate::Override& file) {
  const auto synthetic = parse_synthetic_name(model);
  if (!synthetic) return ModelChatTemplate::load(model_folder(model), file);
  return ModelChatTemplate::from_config(synthetic_tokenizer(*synthetic->shape).tokenizer_config_json, model, file);
}

}  // namespace heddle
