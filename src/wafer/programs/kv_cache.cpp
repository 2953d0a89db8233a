#include "wafer/programs/kv_cache.h"

#include <algorithm>
#include <utility>

namespace heddle {

void WaferKvCache::reserve(int rows, std::int64_t slots, const KvRows& kept) {
  if (slots <= slots_) return;
  WaferKvCache wider(width_, tile_);
  wider.slots_ = slots;
  wider.keys_ = mesh::ValueArray(rows * slots * token_values());
  wider.values_ = mesh::ValueArray(rows * slots * token_values());
  if (slots_ > 0)
    for (int row = 0; row < rows; ++row)
      for (std::int64_t token = kept.first(row); token < kept.first(row + 1); ++token) {
        std::copy_n(key(row, token), token_values(), wider.key(row, token));
        std::copy_n(value(row, token), token_values(), wider.value(row, token));
      }
  *this = std::move(wider);
}

}  // namespace heddle
