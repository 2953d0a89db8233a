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

using PackedFacts = std::array<PackedFact, kMostRankFacts>;
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

const PackedFact* find_fact(const PackedFacts& facts, std::string_view name) {
  const auto found =
      std::ranges::find_if(facts, [&](const PackedFact& fact) { return text_of_packed(fact.name) == name; });
  return found == facts.end() ? nullptr : &*found;
}

// "rank 2 has --seed 7, rank 0 has 6"; empty: none. A rank of another binary may have facts that rank 0 lacks.
std::string difference_of(const PackedFacts& first, const PackedFacts& other, std::size_t rank) {
  const auto text_of_missing = [](const PackedFact* fact, std::string_view name) {
    return fact == nullptr ? fmt::format("no {}", name) : fmt::format("{} {}", name, text_of_packed(fact->value));
  };
  for (const PackedFacts* facts : {&first, &other})
    for (const PackedFact& fact : *facts) {
      const std::string_view name = text_of_packed(fact.name);
      if (name.empty()) continue;
      const PackedFact *mine = find_fact(first, name), *its = find_fact(other, name);
      if (mine != nullptr && its != nullptr && text_of_packed(mine->value) == text_of_packed(its->value)) continue;
      return fmt::format("rank {} has {}, rank 0 has {}", rank, text_of_missing(its, name),
                         text_of_missing(mine, name));
    }
  return {};
}

// Returns when every rank has read what the others gave: the end of one ends the others' waits.
void meet_before_the_end(ControlLine& line) {
  try {
    line.meet();
  } catch (const std::exception&) {  // another has ended already, and this one has read all
  }
}

}  // namespace

void require_equal_facts(ControlLine& line, const std::vector<RankFact>& mine) {
  require(mine.size() <= kMostRankFacts, "{} facts of a rank", mine.size());
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
    const std::string difference = difference_of(first, other, rank);
    if (difference.empty()) continue;
    meet_before_the_end(line);
    throw_error<InputError>("{}: the ranks of a model need the same", difference);
  }
}

}  // namespace heddle
