// Notes for the person at the terminal, on standard error.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace heddle {

// Something is not as it should be, and the work goes on; also when standard error is closed.
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format("heddle: warning: {}\n", fmt::format(format, std::forward<Args>(args)...)).c_str(), stderr);
}

}  // namespace heddle
