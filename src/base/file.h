// Files: read whole, mapped, or written so that a reader never sees half of one.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

// The whole file. Throws InputError when it is missing, not a regular file, or larger than `max_bytes`;
// Failure when reading breaks off.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// A file that is written in pieces beside `path` and takes that name when it is complete, so that `path` holds the old
// contents or the new ones. Without commit() it is removed. Every member throws Failure, which a file system may have
// kept until the file is closed (a quota, NFS, a full disk).
class PendingFile {
 public:
  explicit PendingFile(const std::filesystem::path& path);
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile();

  void write(std::span<const std::byte> bytes);

  // Once, and the last call.
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // path_ with ".<process>.tmp" behind it
  std::FILE* file_ = nullptr;
  bool committed_ = false;
};

// A PendingFile of one piece. Throws Failure.
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
