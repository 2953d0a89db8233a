// What a number of the wafer's is. Every result says it (docs/wafer.md, "What a number is").
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

// simulated: words went over the links of a simulated mesh, and cycles are their hops, ramps, words and waits; nothing in it
// was fitted. counted: what a program does was counted and not played: words on links, steps that stand for others, tiles
// and routes of a core; nothing in it was fitted. analytical: a formula, or a number of operations, calls, stages or values
// times a cost, whose constants were fitted to other cells. fitted: constants were fitted to this very figure, or stand for
// nothing else. published: a number of the paper. held out: analytical, of published figures that were kept back from us.
enum class Basis : std::uint8_t { simulated, counted, analytical, fitted, published, held_out };

// The bases of what a number is made of: "simulated + fitted" has a simulated and a fitted part.
class Bases {
 public:
  constexpr Bases() = default;  // of nothing
  constexpr Bases(Basis basis) : bits_(1U << static_cast<unsigned>(basis)) {}

  constexpr Bases operator|(Bases other) const {
    Bases both;
    both.bits_ = bits_ | other.bits_;
    return both;
  }
  constexpr Bases& operator|=(Bases other) { return *this = *this | other; }
  constexpr bool has(Basis basis) const { return (bits_ & Bases(basis).bits_) != 0; }
  constexpr bool operator==(const Bases&) const = default;

 private:
  unsigned bits_ = 0;
};

constexpr Bases operator|(Basis a, Basis b) {
  return Bases(a) | Bases(b);
}

// "held out"; of several, in the order of Basis: "counted + fitted".
std::string text_of(Bases);

}  // namespace heddle
