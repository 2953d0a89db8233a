#pragma once

#include <string_view>

#include "text/chat_template/ast.h"

namespace heddle::jinja {

// Throws InputError "<where>, line N: ..." on syntax errors, on unknown filters and tests (where they would certainly
// run, as in jinja2), on tags that read other files, and on nesting beyond a limit.
Template parse_template(std::string_view source, std::string_view where);

}  // namespace heddle::jinja
