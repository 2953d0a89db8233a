// Errors of one rank among several.
#pragma once

#include <exception>

namespace heddle {

// Throws the same with "rank 2: " before its text: as InputError, InvalidArgument, Timeout or LostDevice if it is one, else
// as Failure.
[[noreturn]] void throw_naming_rank(int rank, const std::exception_ptr& error);

}  // namespace heddle
