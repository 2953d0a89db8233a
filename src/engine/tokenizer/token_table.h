// Strings by token id, in one block of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

constexpr std::int32_t kMaxTokenId = (1 << 24) - 1;

class TokenTable {
 public:
  struct Entry {
    std::int32_t id;  // 0..kMaxTokenId
    std::string text;
  };

  TokenTable() = default;

  // Of two entries with one id the later counts.
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
