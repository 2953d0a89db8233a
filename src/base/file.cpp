#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

// The size of an opened regular file.
std::size_t regular_size(const Descriptor& file, const std::filesystem::path& path) {
  if (file.get() < 0) throw_error<InputError>("{}: cannot open: {}", path.string(), std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    throw_error<Failure>("{}: cannot read its size: {}", path.string(), std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw_error<InputError>("{}: is a folder, expected a file", path.string());
  if (!S_ISREG(status.st_mode)) throw_error<InputError>("{}: is not a regular file", path.string());
  return static_cast<std::size_t>(status.st_size);
}

// Git LFS puts these few lines in the place of a large file until it is fetched.
bool is_lfs_pointer(std::string_view text) {
  constexpr std::size_t kLargestPointer = 1024;  // by its specification
  return text.size() < kLargestPointer && text.starts_with("version https://git-lfs");
}

}  // namespace

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  // Non-blocking, so that opening a FIFO by mistake does not wait for a writer.
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);
  const std::size_t size = regular_size(file, path);
  if (size > max_bytes)
    throw_error<InputError>("{}: has {} bytes, more than {} (max_file_bytes)", path.string(), size, max_bytes);
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(file.get(), text.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_error<Failure>("{}: cannot read: {}", path.string(), std::strerror(errno));
    if (count == 0) throw_error<Failure>("{}: became shorter while it was read", path.string());
    done += static_cast<std::size_t>(count);
  }
  if (is_lfs_pointer(text))
    throw_error<InputError>("{}: is a Git LFS pointer instead of the file. Fetch it with: git lfs pull", path.string());
  return text;
}

PendingFile::PendingFile(const std::filesystem::path& path)
    : path_(path),
      temporary_(path.string() + fmt::format(".{}.tmp", ::getpid())),
      file_(std::fopen(temporary_.c_str(), "wbe")) {
  if (file_ == nullptr) fail();
}

PendingFile::~PendingFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void PendingFile::write(std::span<const std::byte> bytes) {
  require(file_ != nullptr, "{}: written after commit", path_.string());
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
}

void PendingFile::commit() {
  require(file_ != nullptr, "{}: committed twice", path_.string());
  std::FILE* file = std::exchange(file_, nullptr);  // so that it is closed only once, even if that fails
  if (std::fclose(file) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  committed_ = true;
}

void PendingFile::fail() const {
  throw_error<Failure>("{}: cannot write: {}", path_.string(), std::strerror(errno));
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  PendingFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);
  const std::size_t size = regular_size(file, path);
  if (size == 0) return;  // mmap rejects a length of 0
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED)
    throw_error<Failure>("{}: cannot map {} bytes: {}", path.string(), size, std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void read_mapped(std::span<const std::byte> part) {
  if (part.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(part.data()) + part.size();
  // EINVAL: the kernel is older than 5.14 and does not support it; pages are then read on access.
  if (::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ) != 0 && errno != EINVAL)
    throw_error<Failure>("a mapped file can no longer be read: {}; has it become shorter?", std::strerror(errno));
}

}  // namespace heddle
