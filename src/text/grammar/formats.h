// The formats of JSON Schema that are checked, as regular expressions for the whole text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle::grammar {

// Nothing for a format that is not supported.
std::optional<std::string_view> pattern_of_format(std::string_view format);

// "date, time, ...", for errors.
std::string format_names();

}  // namespace heddle::grammar
