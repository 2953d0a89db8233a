// How a model writes calls of tools.
#pragma once

#include <cstdint>

namespace heddle::server {

enum class ToolFormat : std::uint8_t {
  none,
  tagged,  // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, each (Hermes, Qwen)
  json     // the whole answer is {"name": ..., "parameters": {...}}, or several with ; between (Llama 3)
};

}  // namespace heddle::server
