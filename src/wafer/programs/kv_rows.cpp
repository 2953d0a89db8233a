#include "wafer/programs/kv_rows.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {

KvRows::KvRows(int rows, KvMethod method, KvRowsLimits limits) : method_(method), limits_(limits) {
  require(rows >= 1, "a KV cache on {} rows of cores", rows);
  first_.assign(static_cast<std::size_t>(rows) + 1, 0);
  passing_.reserve(static_cast<std::size_t>(rows));
}

void KvRows::check_room(std::int64_t tokens, std::int64_t in_last_row) const {
  if (limits_.tokens && method_ == KvMethod::shift && tokens > *limits_.tokens)
    throw_error<InputError>("the KV cache is full: {} rows of cores hold {} tokens, {} are needed", rows(),
                            *limits_.tokens, tokens);
  if (limits_.tokens_in_row && in_last_row > *limits_.tokens_in_row)
    throw_error<InputError>(
        "the KV cache is full: the last row of cores holds {} tokens, {} are needed ({} in all rows){}",
        *limits_.tokens_in_row, in_last_row, tokens,
        method_ == KvMethod::concat ? "; shifting them would fill the other rows" : "");
}

void KvRows::fill(std::int64_t tokens) {
  const std::int64_t each = tokens / rows(), odd = tokens % rows();
  check_room(tokens, method_ == KvMethod::concat ? each + (odd > 0) : 0);
  for (int row = 0; row < rows(); ++row)
    first_[static_cast<std::size_t>(row) + 1] = first(row) + each + (row >= rows() - odd);
}

std::span<const int> KvRows::append() {
  check_room(size() + 1, method_ == KvMethod::concat ? count(rows() - 1) + 1 : 0);
  passing_.clear();
  if (method_ == KvMethod::shift) {
    bool above_passes = false;  // the top row cannot pass
    for (int row = 1; row < rows(); ++row) {
      above_passes = count(row) > count(row - 1) || (count(row) == count(row - 1) && above_passes);
      if (above_passes) passing_.push_back(row);
    }
    for (const int row : passing_) ++first_[static_cast<std::size_t>(row)];
  }
  ++first_.back();
  return passing_;
}

std::int64_t KvRows::fullest() const {
  std::int64_t most = 0;
  for (int row = 0; row < rows(); ++row) most = std::max(most, count(row));
  return most;
}

int KvRows::row_of(std::int64_t token) const {
  require(token >= 0 && token < size(), "token {} of {} in a KV cache", token, size());
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), token) - first_.begin()) - 1;
}

}  // namespace heddle
