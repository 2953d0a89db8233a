// What only NCCL's device code can compute. Includes NCCL's headers.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace heddle {

// The current device's addresses of a symmetric window at each of `size` ranks. Throws Failure.
std::vector<std::byte*> window_addresses(ncclWindow_t window, int size);

}  // namespace heddle
