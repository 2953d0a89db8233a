// jinja2's built-in filters, and tojson as transformers has it.
#pragma once

#include <string_view>

#include "engine/chat_template/arguments.h"

namespace heddle::jinja {

class Interpreter;

using Filter = Value (*)(Interpreter&, const Value&, CallArguments);

Filter find_filter(std::string_view name);  // null: there is none

}  // namespace heddle::jinja
