// Views of the paged KV cache of one layer, and of the sequences of a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "schedule/zigzag.h"

namespace heddle {

// Which rank's cache it is, where the positions of each sequence are divided over ranks, by pages (schedule/zigzag.h).
struct KvShard {
  int rank = 0;
  int ranks = 1;

  friend constexpr bool operator==(const KvShard&, const KvShard&) = default;
};

// Both halves are [num_pages, num_kv_heads, page_size, head_dim]: slot s of head h of page p begins at element ((p *
// num_kv_heads + h) * page_size + s) * head_dim. A view without ownership.
struct PagedKv {
  void* keys = nullptr;
  void* values = nullptr;
  int num_kv_heads = 0;
  int page_size = 0;  // in tokens, >= 1, not necessarily a power of two
  int head_dim = 0;
  DType dtype = DType::float32;
  KvShard shard = {};  // whose part it is

  // Whether the token at a position is in this cache, and its place in the sequence's slots here.
  constexpr bool has(int position) const { return shard.ranks == 1 || zigzag().owner(position) == shard.rank; }
  constexpr int place(int position) const { return shard.ranks == 1 ? position : zigzag().place(position); }
  // How many of a sequence's first `length` tokens are in this cache. They are in its first slots.
  constexpr int count(int length) const { return shard.ranks == 1 ? length : zigzag().count(shard.rank, length); }

  // The index of the first element of slot `slot` of head `head` of page `page`.
  constexpr std::size_t offset(std::int32_t page, int head, int slot) const {
    const std::size_t row =
        (static_cast<std::size_t>(page) * static_cast<std::size_t>(num_kv_heads) + static_cast<std::size_t>(head)) *
            static_cast<std::size_t>(page_size) +
        static_cast<std::size_t>(slot);
    return row * static_cast<std::size_t>(head_dim);
  }

 private:
  constexpr schedule::Zigzag zigzag() const { return {.ranks = shard.ranks, .block = page_size}; }
};

// What a GPU kernel may read before the kernels ahead in the stream have ended.
enum class OlderKeys {
  in_flight,  // nothing
  // The step's arrays (PagedSequences, positions), and keys and values except those of the step's new tokens. Their
  // writers have ended before the step's first kernel starts; that holds where a step is a graph or begins with a copy.
  in_place,
};

// The step's tokens, sequence after sequence. Rows [query_start[i], query_start[i + 1]) are the new tokens of sequence
// i, the last of its context_len[i] tokens. Row query_start[i] + j is at position context_len[i] - new tokens + j. The
// token at position t is in slot t % page_size of page page_table[i * page_table_stride + t / page_size]; where the cache
// is one of several ranks', in the slot of PagedKv::place(t) instead of t, or at another rank.
//
// The arrays are in memory of the stream's device. They are read when the stream reaches the operator, and must stay
// valid until it has ended. Operators do not check their contents (step/step_plan.h does): query_start begins at 0,
// does not decrease and ends at the step's number of tokens; context_len[i] >= new tokens of i; all pages of positions
// < context_len[i] exist.
struct PagedSequences {
  const std::int32_t* query_start = nullptr;  // [num_sequences + 1]
  const std::int32_t* context_len = nullptr;  // [num_sequences]
  const std::int32_t* page_table = nullptr;   // [num_sequences, page_table_stride]
  int num_sequences = 0;
  int page_table_stride = 0;
  int max_query_len = 0;    // the most new tokens of one sequence, for the host: GPU launches depend on it
  int max_context_len = 0;  // at least the longest context, likewise; 0: not known, so keys are not split for few rows

  constexpr int num_new_tokens(int sequence) const { return query_start[sequence + 1] - query_start[sequence]; }
  constexpr const std::int32_t* pages(int sequence) const {
    return page_table + static_cast<std::ptrdiff_t>(sequence) * page_table_stride;
  }
};

}  // namespace heddle
