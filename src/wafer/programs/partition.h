// Partitions of the indices of one tensor axis over a line of cores.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle {

// Core c holds `tile` places, [c * tile, (c + 1) * tile). Place p holds index source[p], or padding (zeros) where that
// is kPadding.
struct Partition {
  static constexpr int kPadding = -1;

  int cores = 0;
  int tile = 0;
  std::vector<int> source;  // [cores * tile]
};

// Indices in order, ceil(size / cores) per core.
Partition even_partition(int size, int cores);

// Columns `column` and `column` + 1 of a tile belong to head `head`, on cores [begin, end).
struct HeadColumns {
  int column, head, begin, end;
};

// Splits queries, keys and values of attention over a line of cores. The unit is a pair (i, i + head_dim / 2) of a KV
// head's dimensions, which rotary positions rotate together. Queries of all heads that share a KV head lie with its
// keys. Rotation and products of queries and keys are therefore local. Units are spread evenly; at most
// num_kv_heads * head_dim / 2 cores have work.
struct HeadPartition {
  int head_dim = 0;
  int group = 0;      // query heads per KV head
  int units = 0;      // per core
  Partition keys;     // tile 2 * units: unit u of a core holds places 2u and 2u + 1
  Partition queries;  // tile group * 2 * units: those of the group's first head, then those of its second ...

  // The KV head of unit u of core `core`; Partition::kPadding beyond the last.
  int kv_head(int core, int u) const;
  // The index of that pair in its head: 0 .. head_dim / 2 - 1.
  int pair(int core, int u) const {
    return static_cast<int>((static_cast<std::int64_t>(core) * units + u) % (head_dim / 2));
  }

  // One product of attention: columns `query` and `query` + 1 of a core's queries match columns `key` and `key` + 1 of
  // its keys, in head `head`, on cores [begin, end). Pieces cover every pair of every head once.
  struct Piece {
    int query, key, head, begin, end;
  };
  std::vector<Piece> pieces() const;

  // The heads that the columns of queries, and of keys, belong to.
  std::vector<HeadColumns> query_columns() const;
  std::vector<HeadColumns> key_columns() const;

  int num_kv_heads = 0;
};

// The same partition with indices within a head instead of across heads.
Partition within_head(const Partition& partition, int head_dim);

HeadPartition head_partition(int num_heads, int num_kv_heads, int head_dim, int cores);

}  // namespace heddle
