#pragma once

#include <map>
#include <string_view>

#include "text/chat_template/filters.h"

namespace heddle::jinja {

std::map<std::string_view, Filter> layout_filters();  // filters that format text for people

}  // namespace heddle::jinja
