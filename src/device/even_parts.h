// Splits a count into parts that differ by at most one: part i is [begin_of_part(i), begin_of_part(i + 1)).
#pragma once

#include <concepts>
#include <cstdint>

namespace heddle {

// Where part `index` of `parts` begins, 0 <= index <= parts. count * parts must fit `Wide`.
template <std::unsigned_integral Wide>
constexpr Wide begin_of_part(Wide count, Wide index, Wide parts) {
  return count * index / parts;
}

// The part that contains `place`, 0 <= place < count. count * parts must fit `Wide`.
template <std::unsigned_integral Wide>
constexpr Wide part_of(Wide count, Wide place, Wide parts) {
  return ((place + 1) * parts - 1) / count;
}

}  // namespace heddle
