#include "fabric/mpi/shared_heaps.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/checked.h"
#include "base/error.h"
#include "fabric/shm/heap_file.h"

namespace heddle {

static_assert(sizeof(WaitRecord) <= 4096);

std::size_t SharedHeaps::stride_of(std::size_t heap_bytes) {
  return round_up(heap_bytes, kControlBytes);
}

std::size_t SharedHeaps::all_bytes(int ranks, std::size_t heap_bytes) {
  return kControlBytes + checked_mul(stride_of(heap_bytes), static_cast<std::size_t>(ranks), "the ranks' heaps");
}

std::optional<OpenFile> SharedHeaps::make(int ranks, std::size_t heap_bytes) {
  try {
    return make_heap_file(all_bytes(ranks, heap_bytes));
  } catch (const Failure&) {
    return std::nullopt;
  }
}

SharedHeapsFile SharedHeaps::place_of(const OpenFile& file) {
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return {};
  return {.process = static_cast<std::uint64_t>(getpid()),
          .file = static_cast<std::uint64_t>(file.number()),
          .inode = status.st_ino};
}

std::optional<SharedHeaps> SharedHeaps::open(const SharedHeapsFile& where, int rank, int ranks,
                                             std::size_t heap_bytes) {
  if (where.process == 0) return std::nullopt;
  const std::string path = path_of_heap_file(where.process, where.file);
  const OpenFile file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const std::size_t bytes = all_bytes(ranks, heap_bytes), stride = stride_of(heap_bytes);
  struct stat status {};
  if (file.number() < 0 || fstat(file.number(), &status) != 0 || status.st_ino != where.inode ||
      static_cast<std::size_t>(status.st_size) != bytes)
    return std::nullopt;
  try {
    const auto index = static_cast<std::size_t>(rank);
    if (rank == 0) reserve(file, 0, kControlBytes, "what the ranks share");
    reserve(file, kControlBytes + index * stride, stride, fmt::format("the heap of rank {}", rank));
    return SharedHeaps(Mapping::of_file(file.number(), bytes, "the ranks' heaps"), stride);
  } catch (const Failure&) {
    return std::nullopt;
  }
}

}  // namespace heddle
