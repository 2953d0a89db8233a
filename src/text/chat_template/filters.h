// jinja2's built-in filters, and transformers' tojson.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_template/arguments.h"

namespace heddle::jinja {

class Interpreter;

using Filter = Value (*)(Interpreter&, const Value&, CallArguments);

Filter find_filter(std::string_view name);  // null: unknown

// The message for an unknown filter: jinja2's own message, or that jinja2 has it and Heddle does not support it.
std::string unknown_filter(std::string_view name, std::string_view end = ".");

}  // namespace heddle::jinja
