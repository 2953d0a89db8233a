// What one step computes: plain, copyable data that the scheduler writes and every rank executes in the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "step/part.h"
#include "step/step_choices.h"

namespace heddle {

// How a token is chosen from its logits (engine/sampler.h has the formulas).
struct SamplingParams {
  double temperature = 0;  // 0: greedy
  std::int32_t top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::uint64_t seed = 0;
};

// One sequence's part of a step: `num_tokens` new tokens after `context_len - num_tokens` cached ones.
struct StepSequence {
  std::int64_t request = 0;      // the engine's id
  std::int32_t first_token = 0;  // row of its first new token in `tokens`
  std::int32_t num_tokens = 0;
  std::int32_t context_len = 0;  // tokens in the cache after the step
  std::int32_t first_page = 0;   // of its page table in `pages`
  std::int32_t num_pages = 0;
};

// A row whose logits are needed, and their use.
struct StepSample {
  std::int32_t sequence = 0;  // index into `sequences`
  std::int32_t row = 0;       // of `tokens`
  std::int32_t position = 0;  // of the token to be sampled; with the seed, the only source of randomness
  SamplingParams params;
  std::int32_t scored = kNone;  // the token whose log-probability is returned; kNone: sample a token

  static constexpr std::int32_t kNone = -1;
};

// A page that the cache copies, in all layers, before the step: a sequence is about to write into a page that it shares
// with a fork.
struct PageCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

// The maximum size of a step, for which memory is allocated.
struct StepLimits {
  int max_tokens = 512;
  int max_sequences = 64;
  int max_samples = 64;
  int max_pages_per_sequence = 1;
  int max_parts = 1;          // that a step is computed in: 1 or kMostParts
  bool fused_decode = false;  // whether a step may have a DecodeChoice that is fused
};

struct StepPlan {
  // [num_tokens], the sequences' new tokens one after the other. ~i stands for the token that sample i of the previous
  // step chooses; the device knows it before the host does.
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;  // [num_tokens]
  std::vector<StepSequence> sequences;
  std::vector<std::int32_t> pages;    // page tables, one after the other
  std::vector<StepSample> samples;    // in order of rows
  std::vector<PageCopy> page_copies;  // executed in this order
  // The tokens of the first of two parts, whose exchanges with other ranks and computation overlap (part.h); 0: the step
  // is one part. Rank 0 decides.
  std::int32_t prefix_tokens = 0;
  StepChoices choices;  // of rank 0

  // Empties the plan and keeps its memory.
  void clear();
  // Reserves memory for the largest step, so that filling a plan allocates nothing.
  void reserve(const StepLimits& limits);
};

// Throws InvalidArgument unless the plan keeps to `limits`; rows, positions, page tables and samples are consistent;
// all pages are < num_pages; and tokens are in [0, vocab_size) or, where the previous step chooses num_chosen tokens,
// in ~[0, num_chosen). Executors call it once per step. It implies the preconditions of operators except one: no two
// sequences write into the same page. PageTable ensures that.
void validate(const StepPlan& plan, const StepLimits& limits, int page_size, int num_pages, std::int64_t vocab_size,
              int num_chosen = 0);

// What the memory and the launches of a step depend on, whatever its tokens and contexts.
struct StepShape {
  int num_tokens = 0;
  int num_sequences = 0;
  int num_logit_rows = 0;
  int max_query_len = 0;    // the largest number of new tokens in one sequence
  int max_context_len = 0;  // the longest context; 0: not known
  PartShapes parts = {};    // without tokens: the step is one part
  StepChoices choices = {};
};

StepShape shape_of(const StepPlan& plan);

// The plan's arrays, as operators read them.
struct StepTensors {
  const std::int32_t* tokens = nullptr;       // [num_tokens]
  const std::int32_t* positions = nullptr;    // [num_tokens]
  const std::int32_t* query_start = nullptr;  // [num_sequences + 1]
  const std::int32_t* context_len = nullptr;  // [num_sequences]
  const std::int32_t* page_table = nullptr;   // [num_sequences, page_table_stride]
  const std::int32_t* alone_start = nullptr;  // [num_sequences, 2]: query_start of a step of each sequence by itself
  const std::int32_t* logit_rows = nullptr;   // [num_logit_rows], ascending, each once
  // The plan's sequences, of the host, for steps that are enqueued sequence by sequence: sequence_of() reads them. They
  // stay while the step is enqueued. Null in a dry run, and where tensors_at() made the step.
  const StepSequence* host_sequences = nullptr;  // [num_sequences]
  int host_first_token = 0;                      // of this part in the plan
  int num_tokens = 0;
  int num_sequences = 0;
  int page_table_stride = 0;
  int num_logit_rows = 0;
  int max_query_len = 0;    // the largest number of new tokens in one sequence
  int max_context_len = 0;  // at least the longest context; 0: not known
  StepLimits limits;        // of all steps; determines memory
  StepChoices choices;
  // Of a step in two parts, whose own query_start, context_len, page_table and alone_start are null then.
  std::array<StepPart, kMostParts> parts = {};

  int num_parts() const { return parts.front().shape.num_tokens > 0 ? kMostParts : 1; }
  // Rows of page tables: a sequence in two parts has two.
  int num_page_tables() const {
    return num_parts() == 1 ? num_sequences : parts[0].shape.num_sequences + parts[1].shape.num_sequences;
  }
};

// What the host knows of a step's or part's sequence: `first_token`, `num_tokens` and `context_len` are those of the part.
// Precondition: host_sequences is not null.
StepSequence sequence_of(const StepTensors& step, int index);

// Part `index` as a step of its own, without logits. A step that is not cut is its only part.
StepTensors part_at(const StepTensors& step, int index);

// The arrays of a step of this shape at `seen_at`, in the layout of the largest step: each has the same address in every
// step.
StepTensors tensors_at(std::byte* seen_at, const StepShape& shape, const StepLimits& limits);

// Copies the plan's arrays into `memory`, which has placed_bytes(limits). The result points to where they will be once
// the first placed_bytes(limits, num_sequences) bytes are copied to `seen_at`, which may be `memory`. The plan must keep
// to `limits`. Once the step is enqueued, until when host_sequences refers to it, it may change.
StepTensors place(const StepPlan& plan, const StepLimits& limits, std::byte* memory, std::byte* seen_at);

// Bytes that place() takes, and the first bytes of them that a step with so many rows of page tables uses
// (StepTensors::num_page_tables).
std::size_t placed_bytes(const StepLimits& limits);
std::size_t placed_bytes(const StepLimits& limits, int num_page_tables);

// Pads a step with one token per sequence to `batch` sequences, so that few different steps need a graph. Added
// sequences write into the pages from `spare_page` on, which must belong to nobody; ignore their results.
// spare_pages_for(batch - 1, page_size) spare pages must exist.
void pad_decode(const StepPlan& plan, int batch, int page_size, int spare_page, StepPlan& padded);
int spare_pages_for(int num_added, int page_size);

// Whether all sequences have one token and all logits are needed.
bool is_decode(const StepPlan& plan);

// Whether the plan uses a token that the previous step chooses.
bool awaits_tokens(const StepPlan& plan);

}  // namespace heddle
