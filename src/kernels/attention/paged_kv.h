// The paged key-value cache of one layer, and which tokens of a step belong to which sequence, as operators see them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace heddle {

// Both halves are [num_pages, num_kv_heads, page_size, head_dim]: slot s of head h of page p begins at element
// ((p * num_kv_heads + h) * page_size + s) * head_dim. A view; whoever allocated the pages owns them.
struct PagedKv {
  void* keys = nullptr;
  void* values = nullptr;
  int num_kv_heads = 0;
  int page_size = 0;  // tokens, >= 1, not necessarily a power of two
  int head_dim = 0;
  DType dtype = DType::float32;

  // Elements before slot `slot` of head `head` of page `page`.
  constexpr std::size_t offset(std::int32_t page, int head, int slot) const {
    const std::size_t row =
        (static_cast<std::size_t>(page) * static_cast<std::size_t>(num_kv_heads) + static_cast<std::size_t>(head)) *
            static_cast<std::size_t>(page_size) +
        static_cast<std::size_t>(slot);
    return row * static_cast<std::size_t>(head_dim);
  }
};

// What a GPU may read before the kernels ahead of an operator's own in the stream have ended.
enum class OlderKeys {
  in_flight,  // nothing
  // The step's arrays (those of PagedSequences, and positions), and the keys and values of all but the step's new
  // tokens: whoever wrote them had ended before the step's first kernel began, as is so where a step is a graph, or
  // begins with a copy.
  in_place,
};

// The step's tokens, sequence after sequence: rows [query_start[i], query_start[i + 1]) are the new tokens of sequence
// i, the last of its context_len[i] tokens. Row query_start[i] + j is at position context_len[i] - new tokens + j; the
// token at position t lies in slot t % page_size of page page_table[i * page_table_stride + t / page_size].
//
// The arrays lie in memory of the stream's device, are read when the stream comes to the operator and must be valid
// until it is done. Their contents are a
// precondition that operators do not check (step/step_plan.h, validate, does): query_start begins at 0, does not
// decrease and ends at the step's number of tokens; context_len[i] >= new tokens of i; all pages that
// hold positions < context_len[i] exist.
struct PagedSequences {
  const std::int32_t* query_start = nullptr;  // [num_sequences + 1]
  const std::int32_t* context_len = nullptr;  // [num_sequences]
  const std::int32_t* page_table = nullptr;   // [num_sequences, page_table_stride]
  int num_sequences = 0;
  int page_table_stride = 0;
  int max_query_len = 0;  // the most new tokens of one sequence: what the host knows and launches on a GPU depend on

  constexpr int num_new_tokens(int sequence) const { return query_start[sequence + 1] - query_start[sequence]; }
  constexpr const std::int32_t* pages(int sequence) const {
    return page_table + static_cast<std::ptrdiff_t>(sequence) * page_table_stride;
  }
};

}  // namespace heddle
