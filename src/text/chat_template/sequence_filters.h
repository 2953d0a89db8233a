#pragma once

#include <map>
#include <string_view>

#include "text/chat_template/filters.h"

namespace heddle::jinja {

std::map<std::string_view, Filter> sequence_filters();  // those that take what can be walked

}  // namespace heddle::jinja
