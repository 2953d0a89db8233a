// Schedules for teams whose size is known at run time alone.
#pragma once

#include <initializer_list>
#include <string>

#include "base/error.h"

namespace heddle {

// S of these numbers: make_schedule<schedule::TwoHop>(cores), make_schedule<schedule::KTree>(cores, phases). Throws
// InvalidArgument where S does not support them: at() would give numbers that mean nothing.
template <class S, class... Numbers>
S make_schedule(Numbers... numbers) {
  if (!S::supports(numbers...)) {
    std::string given;
    for (const int number : {numbers...}) given += (given.empty() ? "" : ", ") + std::to_string(number);
    throw_error<InvalidArgument>("{}: a team of {} is not supported; {} is", S::kName, given, S::kTeams);
  }
  if constexpr (requires { S::of(numbers...); })
    return S::of(numbers...);
  else
    return S{numbers...};
}

}  // namespace heddle
