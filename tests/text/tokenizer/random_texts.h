// Texts and ids from a counter, generated as in tools/goldens/random_texts.py, which explains them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/utf8.h"

namespace heddle {

class RandomCounter {
 public:
  RandomCounter(std::uint64_t seed, std::uint64_t index) : state_(mix((seed << 32) + index)) {}

  std::uint64_t below(std::uint64_t bound) {
    state_ += 0x9E3779B97F4A7C15u;
    return (mix(state_) >> 32) % bound;
  }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
  }
  std::uint64_t state_;
};

struct CodePoints {
  struct Range {
    char32_t first;
    char32_t last;
  };
  static constexpr Range kRanges[] = {{0x0, 0xD7FF},      {0xE000, 0xE0FF},   {0xF900, 0x323AF},
                                      {0xE0000, 0xE01EF}, {0xF0000, 0xF000F}, {0x10FFF0, 0x10FFFF}};
  static constexpr std::uint64_t count() {
    std::uint64_t sum = 0;
    for (const Range range : kRanges) sum += range.last - range.first + 1;
    return sum;
  }
  static constexpr char32_t at(std::uint64_t number) {
    for (const Range range : kRanges) {
      if (number <= range.last - range.first) return range.first + static_cast<char32_t>(number);
      number -= range.last - range.first + 1;
    }
    return 0;
  }
};

inline std::string random_text(std::uint64_t seed, std::uint64_t index, const std::vector<std::string>& snippets) {
  constexpr std::uint64_t kChars = 10;
  RandomCounter counter(seed, index);
  std::string text;
  for (std::uint64_t n = 0; n < kChars; ++n) {
    append_utf8(text, CodePoints::at(((index * kChars + n) * 7919 + seed) % CodePoints::count()));
    if (counter.below(2) != 0) continue;
    const std::string& snippet = snippets[counter.below(snippets.size())];
    const std::uint64_t repeats = counter.below(8) == 0 ? 1 + counter.below(12) : 1;
    for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) text += snippet;
  }
  return text;
}

inline std::vector<std::int32_t> random_ids(std::uint64_t seed, std::uint64_t index, std::int32_t vocab_size) {
  RandomCounter counter(seed + 1, index);
  std::vector<std::int32_t> ids(1 + counter.below(12));
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(counter.below(static_cast<std::uint64_t>(vocab_size)));
  return ids;
}

// FNV-1a of 64 bits.
class Fnv {
 public:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001B3u; }
  void add_id(std::uint32_t id) {
    for (int shift = 0; shift < 32; shift += 8) add_byte(static_cast<unsigned char>(id >> shift));
  }
  void add_ids(const std::vector<std::int32_t>& ids) {
    for (const std::int32_t id : ids) add_id(static_cast<std::uint32_t>(id));
    add_id(0xFFFFFFFF);
  }
  void add_text(std::string_view text) {
    for (const char byte : text) add_byte(static_cast<unsigned char>(byte));
    add_byte(0xFF);
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325u;
};

}  // namespace heddle
