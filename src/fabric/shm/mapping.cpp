#include "fabric/shm/mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace heddle {

Mapping Mapping::anonymous(std::size_t size_bytes) {
  // NORESERVE: a heap that is never touched costs nothing.
  void* data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
  if (data == MAP_FAILED)
    throw_error<Failure>("cannot map {} bytes for the ranks' heaps: {}", size_bytes,
                         std::generic_category().message(errno));
  return {static_cast<std::byte*>(data), size_bytes};
}

Mapping Mapping::of_file(int file, std::size_t size_bytes, std::string_view what) {
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED)
    throw_error<Failure>("cannot map {} bytes of {}: {}", size_bytes, what, std::generic_category().message(errno));
  return {static_cast<std::byte*>(data), size_bytes};
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

}  // namespace heddle
