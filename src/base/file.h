// Files: read whole, mapped, or written so that a reader never sees a partial file.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

// Reads the whole file. Throws InputError when it is missing, not a regular file, with words of their own for a folder, or
// larger than `max_bytes`; Failure when reading fails.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// A file that is written in pieces next to `path` and renamed to it when complete: `path` holds either the old contents
// or the new ones. Without commit() it is removed. Every member throws Failure; a file system may delay an error until
// the file is closed (a quota, NFS, a full disk).
class PendingFile {
 public:
  explicit PendingFile(const std::filesystem::path& path);
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile();

  void write(std::span<const std::byte> bytes);

  // Call it once, and last.
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // path_ + ".<process>.tmp"
  std::FILE* file_ = nullptr;
  bool committed_ = false;
};

// Writes a PendingFile in one piece. Throws Failure.
void write_file(const std::filesystem::path& path, std::string_view text);

// A file mapped read-only. Pages are read on access. Throws as read_file does. The file must not shrink while mapped:
// the system answers a read past its end with SIGBUS.
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

// Reads a part of a mapping into memory now, instead of page by page on first access. Throws Failure when the file can
// no longer be read there, for example because it was truncated; an access would end the program.
void read_mapped(std::span<const std::byte> part);

}  // namespace heddle
