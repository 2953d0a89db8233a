// Assigns the tokens of a KV cache to rows of cores on a mesh (WaferLLM, section 4.3): indices only, no values.
//
// Rows hold contiguous ranges of tokens in order, the oldest in row 0, so that neighbours in the sequence are
// neighbours on the wafer. A new token always comes to the last row. Then
//
//   concat   it stays there: only that row fills, and its memory is the limit;
//   shift    a row passes its oldest token up if it holds more tokens than the row above, or as many and that row
//            passes one too. All rows pass at once, over one hop. Rows then differ by at most one token, the last rows
//            hold the odd ones, and every row fills.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace heddle {

enum class KvMethod : std::uint8_t { shift, concat };

struct KvRowsLimits {
  std::optional<std::int64_t> tokens = {};  // of all rows (shift), see kv_capacity().shift_tokens; none: no limit
  std::optional<std::int64_t> tokens_in_row =
      {};  // of one row (concat), see kv_capacity().concat_tokens; none: no limit
};

class KvRows {
 public:
  // Throws InvalidArgument unless rows >= 1.
  KvRows(int rows, KvMethod method, KvRowsLimits limits = {});

  // Sets the state after prefill: `tokens` tokens, spread evenly, the odd ones in the last rows. Throws InputError as
  // append() does.
  void fill(std::int64_t tokens);

  // Adds a token to the last row. Returns the rows that pass their oldest token up: the caller moves the values of row
  // y's to row y - 1. Valid until the next call. Throws InputError with the numbers, and changes nothing, where the
  // cache is full.
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
