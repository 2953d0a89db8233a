// Sets of Unicode code points without surrogates, as ranges.
#pragma once

#include <span>
#include <vector>

namespace heddle::grammar {

inline constexpr char32_t kLastCharacter = 0x10FFFF;

struct CharacterRange {
  char32_t first = 0;
  char32_t last = 0;
  bool operator==(const CharacterRange&) const = default;
};

class CharacterSet {
 public:
  CharacterSet() = default;
  CharacterSet(std::initializer_list<CharacterRange> ranges) : CharacterSet(std::vector(ranges)) {}
  explicit CharacterSet(std::vector<CharacterRange> ranges);

  static CharacterSet all();

  std::span<const CharacterRange> ranges() const { return ranges_; }  // ascending, neither adjacent nor overlapping
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t character) const;

  CharacterSet operator|(const CharacterSet& other) const;
  CharacterSet operator&(const CharacterSet& other) const;
  CharacterSet operator~() const;

 private:
  std::vector<CharacterRange> ranges_;
};

}  // namespace heddle::grammar
