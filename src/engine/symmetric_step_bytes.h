// What the steps of a model take of each rank's symmetric memory, beside collectives.
#pragma once

#include <algorithm>
#include <cstddef>

namespace heddle {

struct SymmetricStepBytes {
  std::size_t exchanges = 0;  // what exchanges between ranks keep while the model lives
  std::size_t rows = 0;       // of the hidden state, which other ranks read and write (Strategy::take_block_rows)

  friend bool operator==(const SymmetricStepBytes&, const SymmetricStepBytes&) = default;
};

// Enough for both.
inline SymmetricStepBytes max(const SymmetricStepBytes& a, const SymmetricStepBytes& b) {
  return {.exchanges = std::max(a.exchanges, b.exchanges), .rows = std::max(a.rows, b.rows)};
}

}  // namespace heddle
