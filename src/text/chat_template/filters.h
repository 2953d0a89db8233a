// jinja2's built-in filters, and tojson as transformers has it.
#pragma once

#include <string>
#include <string_view>

#include "text/chat_template/arguments.h"

namespace heddle::jinja {

class Interpreter;

using Filter = Value (*)(Interpreter&, const Value&, CallArguments);

Filter find_filter(std::string_view name);  // null: there is none

// The message about one that there is not: jinja2's, or that it is jinja2's and not supported.
std::string unknown_filter(std::string_view name, std::string_view end = ".");

}  // namespace heddle::jinja
