// Sampling parameters of a chat, and changing them by name during the chat.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "step/step_plan.h"

namespace heddle {

struct ChatParameters {
  SamplingParams sampling;
  std::int64_t max_tokens = 0;  // per answer

  // "temperature=0.7 top_k=40 ...", all of them.
  std::string list() const;

  // Assigns from a list of that form, which may be incomplete. Throws InputError that names the error, and then changes
  // nothing.
  void assign(std::string_view assignments);
};

}  // namespace heddle
