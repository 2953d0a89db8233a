// How the indices of one axis of a tensor are dealt out to a line of cores.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle {

// Core c holds `tile` places, [c * tile, (c + 1) * tile); place p holds index source[p], or padding (zeros) where that
// is kPadding.
struct Partition {
  static constexpr int kPadding = -1;

  int cores = 0;
  int tile = 0;
  std::vector<int> source;  // [cores * tile]
};

// Indices in their order, ceil(size / cores) to a core.
Partition even_partition(int size, int cores);

// Columns `column` and `column` + 1 of a tile are of head `head`, for cores [begin, end).
struct HeadColumns {
  int column, head, begin, end;
};

// Queries, keys and values of attention over a line of cores, so that no head is cut where it must not be: the unit is
// a pair (i, i + head_dim / 2) of a key-value head's dimensions, which rotary positions turn together; and the queries
// of all heads that share a key-value head lie where its keys lie. So turning, and products of queries and keys, are
// local. Units are dealt out evenly; num_kv_heads * head_dim / 2 of them keep as many cores busy at most.
struct HeadPartition {
  int head_dim = 0;
  int group = 0;      // query heads to a key-value head
  int units = 0;      // of a core
  Partition keys;     // tile 2 * units: unit u of a core holds places 2u and 2u + 1
  Partition queries;  // tile group * 2 * units: those of the group's first head, then those of its second ...

  // The key-value head of unit u of core `core`; Partition::kPadding beyond the last.
  int kv_head(int core, int u) const;
  // Which pair of the head it is: 0 .. head_dim / 2 - 1.
  int pair(int core, int u) const {
    return static_cast<int>((static_cast<std::int64_t>(core) * units + u) % (head_dim / 2));
  }

  // What attention multiplies: columns `query` and `query` + 1 of a core's queries belong to columns `key` and `key` +
  // 1 of its keys, in head `head`, for cores [begin, end). Every pair of every head once.
  struct Piece {
    int query, key, head, begin, end;
  };
  std::vector<Piece> pieces() const;

  // Which heads the columns of queries are of, and those of keys.
  std::vector<HeadColumns> query_columns() const;
  std::vector<HeadColumns> key_columns() const;

  int num_kv_heads = 0;
};

// A partition of the same places in which each holds the dimension of its head alone.
Partition within_head(const Partition& partition, int head_dim);

HeadPartition head_partition(int num_heads, int num_kv_heads, int head_dim, int cores);

}  // namespace heddle
