// Who may ask: keys from a file, compared in constant time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace heddle::server {

class ApiKeys {
 public:
  ApiKeys() = default;  // none: every request is allowed

  // One key a line, of 8 to 512 printable characters without spaces; empty lines and lines that begin with # do not count.
  // Throws InputError with file and line (never with the key) on anything else, and when there is no key.
  static ApiKeys read(const std::filesystem::path& file);
  static ApiKeys parse(std::string_view text, std::string_view where);

  bool empty() const { return digests_.empty(); }
  std::size_t size() const { return digests_.size(); }

  // The number of the key of a header "Bearer KEY", from 1 on; nothing for another key, or none. Compares SHA-256 digests
  // with every key, each in constant time.
  std::optional<std::uint64_t> owner_of(std::string_view authorization) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest_of(std::string_view key);
  std::vector<Digest> digests_;
};

}  // namespace heddle::server
