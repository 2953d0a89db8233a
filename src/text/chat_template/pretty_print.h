// Python's pprint.pformat: repr(), broken into lines of at most 80 columns, with dicts sorted by key.
#pragma once

#include <string>

#include "text/chat_template/value.h"

namespace heddle::jinja {

// Throws TemplateError at the limits of `meter`, and on keys that cannot be ordered.
std::string pretty_print(Meter& meter, const Value& value);

}  // namespace heddle::jinja
