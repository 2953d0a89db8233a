// Strings by token id, in one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

constexpr std::int32_t kMaxTokenId = (1 << 24) - 1;

// The largest allowed id with `num_tokens` tokens: gaps are allowed, but a small file must not create large tables.
std::int32_t max_token_id(std::size_t num_tokens);

// The error message for an id above it.
std::string far_token_id(std::int32_t id, std::size_t num_tokens);

class TokenTable {
 public:
  struct Entry {
    std::int32_t id;  // 0..kMaxTokenId
    std::string text;
  };

  TokenTable() = default;

  // Of two entries with the same id the later wins.
  explicit TokenTable(std::vector<Entry> entries);

  // The largest id + 1.
  std::int32_t size() const { return static_cast<std::int32_t>(begin_.size()) - 1; }

  // Empty for an id in [0, size()) that has no entry.
  std::string_view operator[](std::int32_t id) const;

 private:
  std::string texts_;
  std::vector<std::uint32_t> begin_{0};  // [size + 1] offsets into texts_
};

}  // namespace heddle
