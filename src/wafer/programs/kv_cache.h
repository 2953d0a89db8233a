// The KV cache of one layer on a mesh. Keys and values of a token lie in one row of cores, which KvRows chooses, split
// along x as a HeadPartition says.
#pragma once

#include "wafer/mesh/value_tiles.h"
#include "wafer/programs/kv_rows.h"

namespace heddle {

class WaferKvCache {
 public:
  // `tile`: columns of a key, and of a value, that a core holds.
  WaferKvCache(int width, int tile) : width_(width), tile_(tile) {}

  // Makes room for `slots` tokens, at least KvRows::fullest(), in each of `rows` rows. Keeps the tokens that `kept`
  // lists.
  void reserve(int rows, std::int64_t slots, const KvRows& kept);

  // [tile][width], pitch mesh::value_pitch(width), of a token in `row`. Slots are token numbers modulo the number of
  // slots, and a row holds consecutive tokens, so a token keeps its slot when it moves to another row.
  float* key(int row, std::int64_t token) { return keys_.data() + offset(row, token); }
  float* value(int row, std::int64_t token) { return values_.data() + offset(row, token); }
  const float* key(int row, std::int64_t token) const { return keys_.data() + offset(row, token); }
  const float* value(int row, std::int64_t token) const { return values_.data() + offset(row, token); }

  std::int64_t slots() const { return slots_; }
  std::int64_t pitch() const { return mesh::value_pitch(width_); }

 private:
  std::int64_t token_values() const { return tile_ * pitch(); }
  std::int64_t offset(int row, std::int64_t token) const { return (row * slots_ + token % slots_) * token_values(); }

  int width_, tile_;
  std::int64_t slots_ = 0;
  mesh::ValueArray keys_, values_;
};

}  // namespace heddle
