// Loops whose index is a constant, so that an array it indexes stays in registers. (GCC and nvcc share no pragma for
// it.)
#pragma once

#include <type_traits>
#include <utility>

#include "base/host_device.h"

namespace heddle {

// body(0), ..., body(kCount - 1), each with an integral_constant.
template <int kCount, class Body>
HEDDLE_HOST_DEVICE void unrolled(const Body& body) {
  [&]<int... k>(std::integer_sequence<int, k...>) {
    (body(std::integral_constant<int, k>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

}  // namespace heddle
