// Which rows of a step latent attention computes in which way (latent_attention.h).
//
// For R new tokens of a sequence that see C keys, one head multiplies
//   absorbed  R C (cached_dim + latent_dim): scores and values are in the latents
//   expanded  R C (query_dim + value_dim) + C latent_dim (nope_dim + value_dim): each key and value is made once
// times two. So expanded is cheaper from R > latent_dim (nope_dim + value_dim) / (cached_dim + latent_dim - query_dim -
// value_dim) on, whatever C is: from 171 tokens on for DeepSeek-V2-Lite. What queries and results cost beside that is left
// out: with it, short prompts without a cached beginning would be expanded, too, and gain nothing that matters.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "kernels/attention/expanded_sequences.h"
#include "kernels/attention/paged_kv.h"
#include "step/step_plan.h"

namespace heddle {

// Positions whose keys and values are expanded at a time on the CPU: enough for large GEMMs, and a bound on memory.
inline constexpr int kPieceKeys = 4096;

enum class LatentWay : std::uint8_t { absorbed, expanded };

struct LatentDims {
  int nope = 0;    // of a head's query and key, without position
  int rope = 0;    // of them, rotated
  int value = 0;   // of a head's value
  int latent = 0;  // of a token
};

// The most new tokens of a sequence in a step for which absorbed is cheaper, or no dearer. The largest int: for all.
int most_absorbed_tokens(const LatentDims& dims);

// Consecutive sequences of a step that are computed together: absorbed ones, or expanded ones whose keys are one piece,
// or one by itself.
struct LatentRun {
  LatentWay way = LatentWay::absorbed;
  PagedSequences sequences;    // of expanded ones the first: alone() has each
  std::int64_t first_row = 0;  // of the step, or part
  std::int64_t num_rows = 0;
  ExpandedSequences expanded;  // with all of their keys
  bool by_itself = false;      // the sequences are not the step's first ones

  // Expanded sequence i as a step of its own, and its first row of the step, or part.
  PagedSequences alone(int i) const;
  std::int64_t first_row_of(int i) const { return first_row + expanded.first_token(i); }
};

struct LatentLimits {
  int most_absorbed = 0;    // new tokens of a sequence in the whole step
  int longest_context = 0;  // of a dry run's sequences
  int piece_keys = kPieceKeys;
};

// Calls use(run) for all rows of the step in order. A sequence of more than `most_absorbed` new tokens in the whole step is
// expanded, together with the next ones as long as the keys of all are one piece. The absorbed ones before the first of
// these are one run; others are runs by themselves. In a dry run, which has no sequences,
// the longest one that the shape has is expanded, or all where they are equally long, over `longest_context`.
void for_each_run(const StepTensors& step, const LatentLimits& limits, FunctionRef<void(const LatentRun&)> use);

}  // namespace heddle
