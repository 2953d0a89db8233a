#include "fabric/shm/heap_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace heddle {

OpenFile make_heap_file(std::size_t size_bytes) {
  OpenFile file(memfd_create("heddle-heaps", MFD_CLOEXEC));
  if (file.number() < 0 || ftruncate(file.number(), static_cast<off_t>(size_bytes)) != 0)
    throw_error<Failure>("cannot make a file in memory for the ranks' heaps: {}",
                         std::generic_category().message(errno));
  return file;
}

std::string path_of_heap_file(std::uint64_t process, std::uint64_t file) {
  return fmt::format("/proc/{}/fd/{}", process, file);
}

void require_memory_for_heaps(std::string_view fabric, int ranks, std::size_t heap_bytes, std::size_t available_bytes) {
  if (available_bytes > 0 && heap_bytes > available_bytes / static_cast<std::size_t>(ranks))
    throw_error<InputError>("{}: {} heaps of {} bytes do not fit into the {} bytes of memory that are available",
                            fabric, ranks, heap_bytes, available_bytes);
}

}  // namespace heddle
