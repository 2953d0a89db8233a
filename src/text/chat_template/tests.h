// jinja2's built-in tests.
#pragma once

#include <string_view>

#include "text/chat_template/arguments.h"

namespace heddle::jinja {

class Interpreter;

using Test = bool (*)(Interpreter&, const Value&, CallArguments);

Test find_test(std::string_view name);  // null: unknown

}  // namespace heddle::jinja
