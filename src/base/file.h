// Files: read whole, mapped, or written so that a reader never sees half of one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

// The whole file. Throws InputError when it is missing, not a regular file, or larger than `max_bytes`;
// Failure when reading breaks off.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// Writes beside `path` and renames, so that `path` holds the old text or the new one. Throws Failure.
void write_file(const std::filesystem::path& path, std::string_view text);

// A file mapped read-only. Pages are read when touched. Throws as read_file does.
// The file must not shrink while mapped: the system answers a read past its end with SIGBUS.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// Reads a part of a mapping into memory now; without it, each page is read when first touched. Throws Failure when the
// file can no longer be read there, as when it has become shorter, where touching it would end the program.
void read_mapped(std::span<const std::byte> part);

}  // namespace heddle
