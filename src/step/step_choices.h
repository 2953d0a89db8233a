// What rank 0 chooses of how a step is computed, where ranks could do it in several ways. The choices travel in the
// StepPlan and every rank obeys: no rank decides by a table of its own, which could say something else.
#pragma once

#include <compare>
#include <cstdint>

namespace heddle {

// How the attention of a decode step is computed, with its norm and its projections: by operators of their own, or by one
// (fused/decode_block.h), over thread block clusters or streamed by a block on each SM. The CPU has one way for both.
struct DecodeChoice {
  enum class Form : std::uint8_t { plain, clusters, streamed };

  Form form = Form::plain;
  std::uint8_t cluster = 1;  // of Form::clusters: blocks of each
  std::uint8_t parts = 1;    // of Form::clusters: each KV head's query heads are divided into so many

  bool fused() const { return form != Form::plain; }

  friend auto operator<=>(const DecodeChoice&,
                          const DecodeChoice&) = default;  // NOLINT(modernize-use-nullptr): compares with 0
};

// How ranks add what blocks leave pending.
enum class SumForm : std::uint8_t {
  of_mode,   // as the mode does without a measured table (parallel/tp_mode.h)
  separate,  // an all-reduce, then the norm
  fused,     // sum, residual and norm in one operator
  sharded    // norms divided by token: within the GEMMs around them
};

// How a GEMM behind a norm that is divided by token gets the rows of all ranks (SumForm::sharded): by
// fused/all_gather_linear, whose variants and parameters these are, or by an all-gather that comes first.
struct GatherChoice {
  enum class Form : std::uint8_t { push, pull, copy, bsp };

  Form form = Form::push;
  std::int8_t tile = -1;          // on a GPU: of kGatherTiles; -1: by shape
  std::uint8_t transfer_sms = 4;  // on a GPU: of pull's producer

  friend auto operator<=>(const GatherChoice&,
                          const GatherChoice&) = default;  // NOLINT(modernize-use-nullptr): compares with 0
};

struct StepChoices {
  static constexpr std::int16_t kByDefault = -1;

  SumForm sums = SumForm::of_mode;
  // Of the all-reduces of what blocks leave: an Algorithm (collectives/algorithm.h) with its blocks and threads per block.
  std::int16_t sum_algorithm = kByDefault;
  std::int16_t sum_blocks = 1;
  std::int16_t sum_threads = 512;
  // Of steps whose sequences have one new token each, in one part, whose sums are by themselves.
  DecodeChoice decode;
  // Of SumForm::sharded: the GEMMs behind the norms of attention and of the feed-forward network.
  GatherChoice qkv_gather;
  GatherChoice gate_up_gather;

  friend auto operator<=>(const StepChoices&,
                          const StepChoices&) = default;  // NOLINT(modernize-use-nullptr): compares with 0
};

}  // namespace heddle
