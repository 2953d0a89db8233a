#include "wafer/programs/partition.h"

#include "base/checked.h"

namespace heddle {

Partition even_partition(int size, int cores) {
  Partition partition{.cores = cores, .tile = ceil_div(size, cores), .source = {}};
  const std::int64_t places = static_cast<std::int64_t>(cores) * partition.tile;
  partition.source.resize(static_cast<std::size_t>(places), Partition::kPadding);
  for (int i = 0; i < size; ++i) partition.source[static_cast<std::size_t>(i)] = i;
  return partition;
}

int HeadPartition::kv_head(int core, int u) const {
  const std::int64_t unit = static_cast<std::int64_t>(core) * units + u;
  const auto head = static_cast<int>(unit / (head_dim / 2));
  return head < num_kv_heads ? head : Partition::kPadding;
}

std::vector<HeadPartition::Piece> HeadPartition::pieces() const {
  std::vector<Piece> result;
  for (int u = 0; u < units; ++u)
    for (int core = 0, end = 0; core < keys.cores && kv_head(core, u) != Partition::kPadding; core = end) {
      while (end < keys.cores && kv_head(end, u) == kv_head(core, u)) ++end;
      for (int member = 0; member < group; ++member)
        result.push_back({.query = 2 * (member * units + u),
                          .key = 2 * u,
                          .head = kv_head(core, u) * group + member,
                          .begin = core,
                          .end = end});
    }
  return result;
}

std::vector<HeadColumns> HeadPartition::query_columns() const {
  std::vector<HeadColumns> result;
  for (const Piece& piece : pieces()) result.push_back({piece.query, piece.head, piece.begin, piece.end});
  return result;
}

std::vector<HeadColumns> HeadPartition::key_columns() const {
  std::vector<HeadColumns> result;
  for (const Piece& piece : pieces())
    if (piece.head % group == 0) result.push_back({piece.key, piece.head / group, piece.begin, piece.end});
  return result;
}

Partition within_head(const Partition& partition, int head_dim) {
  Partition result = partition;
  for (int& source : result.source)
    if (source != Partition::kPadding) source %= head_dim;
  return result;
}

HeadPartition head_partition(int num_heads, int num_kv_heads, int head_dim, int cores) {
  const int half = head_dim / 2;
  HeadPartition heads{.head_dim = head_dim,
                      .group = num_heads / num_kv_heads,
                      .units = ceil_div(num_kv_heads * half, cores),
                      .keys = {},
                      .queries = {},
                      .num_kv_heads = num_kv_heads};
  heads.keys = {.cores = cores, .tile = 2 * heads.units, .source = {}};
  heads.queries = {.cores = cores, .tile = heads.group * 2 * heads.units, .source = {}};
  for (int core = 0; core < cores; ++core) {
    const auto place_units = [&](Partition& partition, int heads_apart, int first_head) {
      for (int u = 0; u < heads.units; ++u) {
        const int kv_head = heads.kv_head(core, u);
        const int base = (kv_head * heads_apart + first_head) * head_dim + heads.pair(core, u);
        for (const int dimension : {base, base + half})
          partition.source.push_back(kv_head == Partition::kPadding ? Partition::kPadding : dimension);
      }
    };
    place_units(heads.keys, 1, 0);
    for (int member = 0; member < heads.group; ++member) place_units(heads.queries, heads.group, member);
  }
  return heads;
}

}  // namespace heddle
