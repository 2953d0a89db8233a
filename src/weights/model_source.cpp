#include "weights/model_source.h"

#include "weights/checkpoint.h"

namespace heddle {

std::unique_ptr<ModelSource> open_model(const std::string& model) {
  return std::make_unique<Checkpoint>(model);
}

}  // namespace heddle
