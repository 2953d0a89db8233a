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

struct StepChoices {
  static constexpr std::int16_t kByDefault = -1;

  // Of ranks that have the fused operator: sum over ranks, residual and norm in one; otherwise an all-reduce, then the norm.
  bool fused_sums = true;
  // Of the all-reduces of what blocks leave: an Algorithm (collectives/algorithm.h) with its blocks and threads per block.
  std::int16_t sum_algorithm = kByDefault;
  std::int16_t sum_blocks = 1;
  std::int16_t sum_threads = 512;
  // Of steps whose sequences have one new token each, in one part, whose sums are by themselves.
  DecodeChoice decode;

  friend auto operator<=>(const StepChoices&,
                          const StepChoices&) = default;  // NOLINT(modernize-use-nullptr): compares with 0
};

}  // namespace heddle
