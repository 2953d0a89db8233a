// Errors of one rank among several.
#pragma once

#include <exception>

namespace heddle {

class RankWorld;

// Throws the same with "rank 2: " before its text: as InputError, InvalidArgument, Timeout or LostDevice if it is one, else
// as Failure.
[[noreturn]] void throw_naming_rank(int rank, const std::exception_ptr& error);

// A rank of several processes has failed: throws what the fabric knows of it, if it does, since the own error may be a
// consequence. Otherwise tells the others the cause, which ends their waits and is their error, too, and throws it. Called
// while the exception is handled.
[[noreturn]] void end_among_processes(RankWorld& world);

}  // namespace heddle
