// Whether a group is a thread of the CPU, for code that has loops of its own there.
#pragma once

#include <type_traits>

#include "device/group.h"

namespace heddle {

template <class G>
inline constexpr bool kOneLane = std::is_base_of_v<HostThread, G>;

}  // namespace heddle
