// A growing set of small numbers, which is walked in order while it changes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::mesh {

class BitSet {
 public:
  void insert(std::size_t number) {
    if (number / kBits >= words_.size()) words_.resize(number / kBits + 1);
    words_[number / kBits] |= bit(number);
  }
  void erase(std::size_t number) { words_[number / kBits] &= ~bit(number); }
  void clear() { words_.clear(); }

  // The first member that is not less than `number`; at least `end` if there is none below it.
  std::size_t next(std::size_t number, std::size_t end) const {
    for (std::size_t word = number / kBits; number < end && word < words_.size(); number = ++word * kBits)
      if (const std::uint64_t rest = words_[word] & ~(bit(number) - 1))
        return word * kBits + static_cast<std::size_t>(std::countr_zero(rest));
    return end;
  }

 private:
  static constexpr std::size_t kBits = 64;
  static std::uint64_t bit(std::size_t number) { return std::uint64_t{1} << number % kBits; }

  std::vector<std::uint64_t> words_;
};

}  // namespace heddle::mesh
