// Heddle's errors. A message says what was wrong, where (file, tensor, field, rank) and what to do.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace heddle {

// The user's input is wrong: a file, a flag, a request. The command line exits with 2.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A caller broke a function's precondition.
struct InvalidArgument : std::logic_error {
  using std::logic_error::logic_error;
};

// The machine could not do it: out of memory, an unwritable file, a lost device. The command line exits with 1.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A GPU failed, and this process can no longer use it.
struct LostDevice : Failure {
  using Failure::Failure;
};

// A wait passed its deadline.
struct Timeout : Failure {
  using Failure::Failure;
};

// throw_error<InputError>("{}: no such file", path)
template <class Error, class... Args>
[[noreturn]] void throw_error(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// Checks a precondition: throws InvalidArgument with the formatted message unless `ok`.
template <class... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    throw_error<InvalidArgument>(format, std::forward<Args>(args)...);
}

}  // namespace heddle
