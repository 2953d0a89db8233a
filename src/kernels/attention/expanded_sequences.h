// The sequences of a call of gather_latents() and expanded_attention(), as plain data that a kernel takes by value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/checked.h"

namespace heddle {

inline constexpr int kMostExpandedSequences = 16;
inline constexpr int kExpandedBlockKeys = 128;

// What a call has of one sequence.
struct ExpandedSequence {
  int num_tokens = 0;   // new ones: rows of queries
  int first_query = 0;  // the position of the first
  int num_keys = 0;     // consecutive positions
};

// Rows of queries follow each other. Keys of a sequence begin at a multiple of kExpandedBlockKeys rows.
struct ExpandedSequences {
  std::array<ExpandedSequence, kMostExpandedSequences> of = {};
  int count = 0;

  constexpr ExpandedSequences() = default;
  constexpr ExpandedSequences(const ExpandedSequence& one) : count(1) {  // NOLINT(google-explicit-constructor)
    of[0] = one;
  }

  constexpr void add(const ExpandedSequence& one) { of[static_cast<std::size_t>(count++)] = one; }
  constexpr const ExpandedSequence& operator[](int i) const { return of[static_cast<std::size_t>(i)]; }

  // Of sequence i; of `count`: rows of all.
  constexpr std::int64_t first_token(int i) const {
    std::int64_t rows = 0;
    for (int j = 0; j < i; ++j) rows += of[static_cast<std::size_t>(j)].num_tokens;
    return rows;
  }
  constexpr std::int64_t first_key_row(int i) const {
    std::int64_t rows = 0;
    for (int j = 0; j < i; ++j)
      rows += round_up(std::int64_t{of[static_cast<std::size_t>(j)].num_keys}, std::int64_t{kExpandedBlockKeys});
    return rows;
  }
  constexpr std::int64_t num_tokens() const { return first_token(count); }
  // Without what would fill up the last sequence's block.
  constexpr std::int64_t num_key_rows() const {
    return count == 0 ? 0 : first_key_row(count - 1) + of[static_cast<std::size_t>(count - 1)].num_keys;
  }
};

}  // namespace heddle
