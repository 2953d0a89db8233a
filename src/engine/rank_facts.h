// What the ranks of a model must have in common where each is a process that somebody has started: program, model and
// options.
#pragma once

#include <string>
#include <vector>

#include "engine/control_line.h"

namespace heddle {

struct RankFact {
  std::string name;   // "--dtype"; shown, at most 31 bytes
  std::string value;  // "bfloat16"; shown, at most 95 bytes
};

// Collective, with facts of the same names in the same order. Throws InputError on every rank where a value is not rank
// 0's: "rank 2 has --dtype float16, rank 0 has bfloat16".
void require_equal_facts(ControlLine& line, const std::vector<RankFact>& mine);

}  // namespace heddle
