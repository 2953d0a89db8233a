#pragma once

#include <map>
#include <string_view>

#include "text/chat_template/filters.h"

namespace heddle::jinja {

std::map<std::string_view, Filter> sequence_filters();  // filters of iterables

}  // namespace heddle::jinja
