#include "fabric/shm/shared_object.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace heddle {
namespace {

constexpr mode_t kOwnerOnly = 0600;

std::string message(int error) {
  return std::generic_category().message(error);
}

// ", where 65536 bytes are free"; "" where the system does not tell.
std::string room_left(int file) {
  struct statvfs room {};
  if (fstatvfs(file, &room) != 0 || room.f_blocks == 0) return {};
  return fmt::format(", where {} bytes are free", static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize);
}

}  // namespace

OpenFile::~OpenFile() {
  if (number_ >= 0) close(number_);
}

void reserve(const OpenFile& file, std::size_t offset, std::size_t size_bytes, const std::string& what) {
  int error = EINTR;
  while (error == EINTR)
    error = posix_fallocate(file.number(), static_cast<off_t>(offset), static_cast<off_t>(size_bytes));
  if (error != 0)
    throw_error<Failure>("cannot take {} bytes for {}{}: {}", size_bytes, what, room_left(file.number()),
                         message(error));
}

std::optional<SharedObject> SharedObject::create(const std::string& name, std::size_t size_bytes) {
  OpenFile file(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kOwnerOnly));
  if (file.number() < 0) {
    if (errno == EEXIST) return std::nullopt;
    throw_error<Failure>("cannot make the shared memory object {}: {}", name, message(errno));
  }
  SharedObject object(name, std::move(file));
  // Grows it too, so who sees the size finds the pages.
  reserve(object.file_, 0, size_bytes, fmt::format("the ranks' control block /dev/shm{}", name));
  return object;
}

std::optional<SharedObject> SharedObject::open(const std::string& name, std::size_t size_bytes) {
  OpenFile file(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, kOwnerOnly));
  if (file.number() < 0) {
    if (errno == ENOENT) return std::nullopt;
    throw_error<Failure>("cannot open the shared memory object {}: {}", name, message(errno));
  }
  struct stat status {};
  if (fstat(file.number(), &status) != 0 || static_cast<std::size_t>(status.st_size) < size_bytes) return std::nullopt;
  return SharedObject(name, std::move(file));
}

void SharedObject::remove_name() {
  if (name_.empty() || file_.number() < 0) return;
  const OpenFile there(shm_open(name_.c_str(), O_RDONLY | O_CLOEXEC, kOwnerOnly));
  struct stat named {};
  struct stat own {};
  if (there.number() >= 0 && fstat(there.number(), &named) == 0 && fstat(file_.number(), &own) == 0 &&
      named.st_ino == own.st_ino)
    shm_unlink(name_.c_str());
  name_.clear();
}

}  // namespace heddle
