// Warnings for the user, on standard error.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace heddle {

// Reports a problem that does not stop the work. Safe when standard error is closed.
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format("heddle: warning: {}\n", fmt::format(format, std::forward<Args>(args)...)).c_str(), stderr);
}

}  // namespace heddle
