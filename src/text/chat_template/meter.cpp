#include "text/chat_template/meter.h"

#include <fmt/format.h>

namespace heddle::jinja {

void Meter::fail_steps() const {
  throw TemplateError(fmt::format("the template takes more than max_steps = {} steps", limits_.max_steps));
}

void Meter::fail_memory() const {
  throw TemplateError(
      fmt::format("the template's values take more than max_value_bytes = {} bytes", limits_.max_value_bytes));
}

void Meter::fail_depth() const {
  throw TemplateError(
      fmt::format("the template nests or recurses deeper than max_depth = {} levels", limits_.max_depth));
}

}  // namespace heddle::jinja
