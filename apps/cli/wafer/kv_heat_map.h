// A picture of how full each row of a wafer's KV cache is during a generation.
#pragma once

#include <cstdint>
#include <vector>

#include "base/file.h"
#include "wafer/programs/kv_rows.h"

namespace heddle {

// Tokens in each row of cores, one record per step. For long histories it keeps every second, fourth, ... step, as many
// as a picture can show.
class KvHistory {
 public:
  void record(const KvRows& rows);

  int steps() const { return static_cast<int>(counts_.size()); }
  int rows() const { return counts_.empty() ? 0 : static_cast<int>(counts_.front().size()); }
  std::int64_t count(int step, int row) const {
    return counts_[static_cast<std::size_t>(step)][static_cast<std::size_t>(row)];
  }
  std::int64_t fullest() const;

 private:
  std::vector<std::vector<std::int64_t>> counts_;
  std::int64_t seen_ = 0, stride_ = 1;  // steps; every stride-th is kept
};

// Writes a PNG: time from left to right, row 0 of the cores at the top, from black (empty) over purple and orange to
// light yellow (`full` tokens; 0: the fullest row of all). Cells are whole pixels; histories are thinned to 1600
// columns. Commits the file. Throws InputError when nothing was recorded; Failure when it cannot be written, and then
// leaves no file.
void write_kv_heat_map(PendingFile& file, const KvHistory& history, std::int64_t full = 0);

}  // namespace heddle
