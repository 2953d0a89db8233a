// Highway 1.0's library measures the resolution of its timer when it is loaded, for its benchmarks, which nobody here
// runs: 4 ms of each start of a program that links it. The program's own function goes before the library's.
#include <cstdint>

namespace hwy::platform {

std::uint64_t TimerResolution();

std::uint64_t TimerResolution() {
  return 1;
}

}  // namespace hwy::platform
