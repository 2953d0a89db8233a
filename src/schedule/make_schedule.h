// Makes schedules for teams whose size is known only at run time.
#pragma once

#include <initializer_list>
#include <string>

#include "base/error.h"

namespace heddle {

// Makes an S: make_schedule<schedule::TwoHop>(cores), make_schedule<schedule::KTree>(cores, phases). Throws
// InvalidArgument where S does not support the numbers, because at() would then return meaningless indices.
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
