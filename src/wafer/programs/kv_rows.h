// Which row of cores holds which token of a KV cache on a mesh (WaferLLM, section 4.3): indices alone, no values.
//
// Tokens lie in the rows in their order, the oldest in row 0, each row a contiguous range, so that what is near in the
// sequence is near on the wafer. A new token always comes to the last row. Then
//
//   concat   it stays there: that row fills alone, and its memory is the limit;
//   shift    every row that holds more than the row above it, or as many and that one passes a token up, passes its
//            oldest token up: one hop, all rows at once. So rows never differ by more than one token, the last rows
//            hold the odd ones, and every row fills.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace heddle {

enum class KvMethod : std::uint8_t { shift, concat };

struct KvRowsLimits {
  std::optional<std::int64_t> tokens = {};  // in all (shift), as kv_capacity().shift_tokens; none: no limit
  std::optional<std::int64_t> tokens_in_row =
      {};  // of one row (concat), as kv_capacity().concat_tokens; none: no limit
};

class KvRows {
 public:
  // Throws InvalidArgument unless rows >= 1.
  KvRows(int rows, KvMethod method, KvRowsLimits limits = {});

  // As prefill leaves them: `tokens` of them, spread evenly, the odd ones in the last rows. Throws InputError as
  // append() does.
  void fill(std::int64_t tokens);

  // Adds a token to the last row. Returns the rows that pass their oldest token to the row above, for which values
  // follow: row y's moves to row y - 1; valid until the next call. Throws InputError with the numbers, and changes
  // nothing, where the cache is full.
  std::span<const int> append();

  int rows() const { return static_cast<int>(first_.size()) - 1; }
  KvMethod method() const { return method_; }
  std::int64_t size() const { return first_.back(); }
  std::int64_t first(int row) const { return first_[static_cast<std::size_t>(row)]; }  // its oldest token
  std::int64_t count(int row) const { return first(row + 1) - first(row); }
  std::int64_t fullest() const;

  // The row that holds a token. Precondition: 0 <= token < size().
  int row_of(std::int64_t token) const;

 private:
  void check_room(std::int64_t tokens, std::int64_t in_last_row) const;

  KvMethod method_;
  KvRowsLimits limits_;
  std::vector<std::int64_t> first_;  // [rows + 1]; the last is size()
  std::vector<int> passing_;
};

}  // namespace heddle
