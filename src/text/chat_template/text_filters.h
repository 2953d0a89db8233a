#pragma once

#include <map>
#include <string_view>

#include "text/chat_template/filters.h"

namespace heddle::jinja {

std::map<std::string_view, Filter> text_filters();  // filters from text to text

}  // namespace heddle::jinja
