// The order in which a benchmark samples what it compares.
#pragma once

#include <cstddef>

namespace heddle {

// Which of `count` variants a round samples at its turn `turn`, below `count`: in order, and every other round in the reverse,
// so that a machine that becomes slower does not decide between them.
constexpr std::size_t interleaved(int round, std::size_t turn, std::size_t count) {
  return round % 2 == 0 ? turn : count - 1 - turn;
}

}  // namespace heddle
