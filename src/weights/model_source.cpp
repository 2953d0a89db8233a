#include "weights/model_source.h"

#include "weights/checkpoint.h"
#include "weights/model_folder.h"
#include "weights/synthetic_model.h"

namespace heddle {

std::unique_ptr<ModelSource> open_model(const std::string& model) {
  if (const auto synthetic = parse_synthetic_name(model)) return std::make_unique<SyntheticModel>(*synthetic);
  return std::make_unique<Checkpoint>(model_folder(model));
}

}  // namespace heddle
