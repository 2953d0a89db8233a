#include "engine/rank_facts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string_view>

#include "base/error.h"

namespace heddle {
namespace {

struct PackedFact {
  char name[32] = {};
  char value[96] = {};
};

// One of another binary may have more or fewer.
constexpr std::size_t kMostFacts = 16;
using PackedFacts = std::array<PackedFact, kMostFacts>;
static_assert(sizeof(PackedFacts) <= ControlLine::kMostToAll);

template <std::size_t size>
void pack_text(std::string_view text, char (&packed)[size]) {
  text.copy(packed, size - 1);
}

// What another process has sent may lack its end.
template <std::size_t size>
std::string_view text_of_packed(const char (&packed)[size]) {
  return {packed, ::strnlen(packed, size)};
}

}  // namespace

namespace {

// Returns when every rank has read what the others gave: the end of one ends the others' waits.
void meet_before_the_end(ControlLine& line) {
  try {
    line.meet();
  } catch (const std::exception&) {  // another has ended already, and this one has read all
  }
}

}  // namespace

void require_equal_facts(ControlLine& line, const std::vector<RankFact>& mine) {
  require(mine.size() <= kMostFacts, "{} facts of a rank", mine.size());
  PackedFacts packed{};
  for (std::size_t i = 0; i < mine.size(); ++i) {
    pack_text(mine[i].name, packed[i].name);
    pack_text(mine[i].value, packed[i].value);
  }
  const auto all = line.gather(std::as_bytes(std::span(packed)));
  PackedFacts first{};
  std::memcpy(first.data(), all[0].data(), sizeof first);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    PackedFacts other{};
    std::memcpy(other.data(), all[rank].data(), sizeof other);
    for (std::size_t i = 0; i < kMostFacts; ++i) {
      const std::string_view name = text_of_packed(first[i].name), value = text_of_packed(first[i].value);
      if (name == text_of_packed(other[i].name) && value == text_of_packed(other[i].value)) continue;
      meet_before_the_end(line);
      throw_error<InputError>("rank {} has {} {}, rank 0 has {} {}: the ranks of a model need the same", rank,
                              text_of_packed(other[i].name), text_of_packed(other[i].value), name, value);
    }
  }
}

}  // namespace heddle
