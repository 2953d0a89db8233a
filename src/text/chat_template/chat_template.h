// Chat templates: Jinja as transformers configures it (jinja2's ImmutableSandboxedEnvironment with trim_blocks and
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
  std::optional<std::tm> local_time;  // for strftime_now; without it, the current time
};

// Immutable; any number of threads may render the same template.
class ChatTemplate {
 public:
  // `where` begins every message. Throws InputError with the line when `source` is not a valid template, has invalid
  // UTF-8, or is larger than 1 MiB.
  static ChatTemplate parse(std::string_view source, std::string where);

  // `variables` is an object; its members keep their order. Throws InputError with the template's line: for
  // raise_exception (with its message), for operations that Python rejects, and at the limits. The message is escaped
  // to one line of at most about 1000 bytes. A value of `variables` that templates cannot represent (an integer beyond
  // 64 bits, invalid UTF-8, nesting beyond 190 levels) is an InputError too.
  std::string render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const;

 private:
  struct State;
  explicit ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace heddle
