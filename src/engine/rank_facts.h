// What the ranks of a model must have in common where each is a process that somebody has started: program, model and
// options.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/control_line.h"

namespace heddle {

inline constexpr std::size_t kMostRankFacts = 32;

struct RankFact {
  std::string name;   // "--dtype"; shown, at most 31 bytes
  std::string value;  // "bfloat16"; shown, at most 95 bytes
};

// Collective, with at most kMostRankFacts of distinct names; what one of them lacks is compared, too. Throws InputError on every rank where a value is not rank
// 0's: "rank 2 has --dtype float16, rank 0 has bfloat16".
void require_equal_facts(ControlLine& line, const std::vector<RankFact>& mine);

}  // namespace heddle
