// The attributes and methods of values, and the global functions.
#pragma once

#include <optional>
#include <string_view>

#include "text/chat_template/arguments.h"

namespace heddle::jinja {

class Interpreter;

// getattr(): nothing when there is no such attribute. For what jinja2's sandbox forbids (methods that change a list or
// dict, names that begin with "_") it returns an undefined value with that message.
std::optional<Value> find_attribute(Interpreter& interpreter, const Value& value, std::string_view name);

Value call_method(Interpreter& interpreter, const Value& self, std::string_view name, CallArguments arguments);

bool is_function(std::string_view name);  // range, dict, namespace, raise_exception ...
Value call_function(Interpreter& interpreter, std::string_view name, CallArguments arguments);

}  // namespace heddle::jinja
