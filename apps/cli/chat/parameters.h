// How the answers of a chat are sampled, and changing it by name while it goes on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "step/step_plan.h"

namespace heddle {

struct ChatParameters {
  SamplingParams sampling;
  std::int64_t max_tokens = 0;  // of one answer

  // "temperature=0.7 top_k=40 ...", all of them.
  std::string list() const;

  // Takes a list of that form, some or all, or throws InputError, which names what is wrong, and changes nothing.
  void assign(std::string_view assignments);
};

}  // namespace heddle
