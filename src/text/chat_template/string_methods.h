// The methods of str.
#pragma once

#include <string_view>

#include "text/chat_template/arguments.h"

namespace heddle::jinja {

class Interpreter;

bool is_string_method(std::string_view name);
Value call_string_method(Interpreter& interpreter, const Value& self, std::string_view name, CallArguments arguments);

}  // namespace heddle::jinja
