// Commands that `heddle launch` runs as the ranks of one model: rank 0 is the command, the others compute their parts.
#pragma once

#include <string_view>
#include <vector>

#include "cli/model_options.h"
#include "engine/rank_facts.h"
#include "weights/model_source.h"

namespace CLI {
class App;
}

namespace heddle {

// Ranks of the run, of which this process is one; 1: no run, or of one rank.
int num_launched_ranks();

// In a run, a rank other than 0 loads its part of the model, carries out rank 0's steps, and returns true when rank 0 has
// ended. Otherwise returns false at once. Throws as load(), and the fabric's error when a rank is lost.
bool followed(const ModelOptions& options);

// Throws InputError, naming `command`, in a run of several ranks: for commands that none but one process can carry out.
void require_no_run(std::string_view command);

// The command's name and the options that were given, for ModelOptions::given; without those in which ranks may differ
// (--model, --threads, --verbose, --quiet) and those that facts_of() compares with their defaults.
std::vector<RankFact> given_options(const CLI::App& command);

// What all ranks of a run must have in common.
std::vector<RankFact> facts_of(const ModelSource& source, const ModelOptions& options);

}  // namespace heddle
