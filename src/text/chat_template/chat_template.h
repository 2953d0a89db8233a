// Chat templates: Jinja as transformers sets it up (jinja2's ImmutableSandboxedEnvironment with trim_blocks and
// lstrip_blocks, loop controls and the tag `generation`; tojson, raise_exception, strftime_now), without autoescape and
// without I/O.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/chat_template/limits.h"

namespace heddle {

struct RenderOptions {
  TemplateLimits limits;
  std::optional<std::tm> local_time;  // of strftime_now; without it, the clock's
};

// Immutable; any number of threads may render one template.
class ChatTemplate {
 public:
  // `where` begins every message. Throws InputError with the line on what is no template, holds invalid UTF-8, or is
  // larger than 1 MiB.
  static ChatTemplate parse(std::string_view source, std::string where);

  // `variables` is an object; its members keep their order. Throws InputError with the template's line: its own message
  // where it calls raise_exception, a use that Python refuses, and the limits, the message escaped to one line of at
  // most about 1000 bytes. A value of `variables` that has no place
  // in a template (an integer beyond 64 bits, invalid UTF-8, nesting beyond 190 levels) is an InputError too.
  std::string render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;

 private:
  struct State;
  explicit ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace heddle
