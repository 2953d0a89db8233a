#pragma once

#include <string_view>

#include "text/chat_template/ast.h"

namespace heddle::jinja {

// Throws InputError "<where>, line N: ..." on what is no template, on filters and tests that do not exist (where they
// surely would run, as jinja2 does), on tags that read other files, and on nesting beyond a limit.
Template parse_template(std::string_view source, std::string_view where);

}  // namespace heddle::jinja
