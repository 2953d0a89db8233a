#pragma once

#include <map>
#include <string_view>

#include "text/chat_template/filters.h"

namespace heddle::jinja {

std::map<std::string_view, Filter> text_filters();  // those that take and give text

}  // namespace heddle::jinja
