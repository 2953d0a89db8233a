// The heaps of ranks that share one machine: one file in memory, which every rank maps, so that loads and stores
// replace messages.
//
// MPI's shared windows lie in /dev/shm, which has 64 MB in many containers, and touching a page beyond that raises a
// signal. Here every rank allocates its own pages when it opens them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "device/peers.h"
#include "fabric/shm/mapping.h"
#include "fabric/shm/shared_object.h"

namespace heddle {

// How a rank finds the file that rank 0 has created; zeros: there is none. Plain data: it is sent between ranks.
struct SharedHeapsFile {
  std::uint64_t process = 0;
  std::uint64_t file = 0;   // its number there
  std::uint64_t inode = 0;  // tells it from another process's, whose namespace has the same numbers
};

class SharedHeaps {
 public:
  // For rank 0, which keeps the file open until the others have opened it. Empty if the system cannot create the file.
  static std::optional<OpenFile> make(int ranks, std::size_t heap_bytes);
  static SharedHeapsFile place_of(const OpenFile& file);

  // Empty if this rank cannot reach the file (another container, another user) or there is too little memory.
  static std::optional<SharedHeaps> open(const SharedHeapsFile& where, int rank, int ranks, std::size_t heap_bytes);

  std::byte* heap(int rank) const { return pages_.data() + kControlBytes + static_cast<std::size_t>(rank) * stride_; }
  // Shared by all ranks: when one wait gives up, all do.
  WaitRecord& record() const { return *reinterpret_cast<WaitRecord*>(pages_.data()); }

 private:
  static constexpr std::size_t kControlBytes = 4096;

  SharedHeaps(Mapping pages, std::size_t stride) : pages_(std::move(pages)), stride_(stride) {}
  static std::size_t stride_of(std::size_t heap_bytes);
  static std::size_t all_bytes(int ranks, std::size_t heap_bytes);

  Mapping pages_;
  std::size_t stride_;
};

}  // namespace heddle
