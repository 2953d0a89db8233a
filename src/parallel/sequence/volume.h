// How much a strategy sends between machines: the paper's equations, and the count of what our programs move.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/sequence/program.h"

namespace heddle {

// The sizes of appendix D. Elements, not bytes.
struct SequenceVolume {
  int machines = 1;           // N
  int gpus = 1;               // M, of a machine
  int degree = 1;             // P_u; P_r is N M / P_u
  std::int64_t elements = 0;  // B L H D
};

SequenceVolume volume_of(const SequenceMemory& memory);

// Equations 4 (P_r >= N) and 5 (P_r <= N), as printed: elements a machine and layer.
double usp_volume(const SequenceVolume& of);
// Equations 6 (P_u >= N) and 7 (P_u <= N), as printed: TAS and Torus Attention.
double stream_fusion_volume(const SequenceVolume& of);

// Equation 4 or 5 for Ring and USP, 6 or 7 for the others.
double printed_volume(SequenceStrategy strategy, const SequenceVolume& of);

// What the programs of a team move between machines. docs/notes/sequence_attention.md derives where and why it differs
// from the equations.
struct SequenceCount {
  std::vector<std::int64_t> into_machine;  // elements that enter each machine in a layer
  std::vector<std::int64_t> out_of_machine;
  std::int64_t largest = 0;  // of both: equal on all machines where every rank has as many tokens
  int barriers_of_all = 0;   // of each rank
};

SequenceCount count_sequence_programs(const SequenceMemory& memory, const std::vector<SequenceProgram>& programs);

// A sentence that says why a count differs from the equation, and by how much; empty where it does not.
std::string why_counts_differ(SequenceStrategy strategy, const SequenceMemory& memory, const SequenceCount& count);

// The programs of all ranks.
std::vector<SequenceProgram> make_sequence_programs(SequenceStrategy strategy, const SequenceMemory& memory);

}  // namespace heddle
