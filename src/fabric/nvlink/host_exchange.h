// Lets the hosts of GPU ranks exchange what they need to open a fabric: handles, sizes, and that all have joined.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/stream.h"
#include "base/thread_pool.h"
#include "device/tag.h"
#include "fabric/fabric.h"
#include "fabric/process_state.h"

namespace heddle {

// All-gather of small values over a fabric with peer addresses in host memory, for one thread per rank.
class HostExchange {
 public:
  static constexpr std::size_t kMostBytes = 256;

  // Collective over the world of `host`, which must outlive it; takes heap_bytes of its heap.
  explicit HostExchange(Fabric& host);
  static std::size_t heap_bytes(int world_size);

  int rank() const { return host_.rank(); }
  int size() const { return host_.size(); }
  std::span<const int> world() const { return world_; }

  // Collective over `team`, which contains the caller. Returns each rank's value, in the team's order. Throws the
  // fabric's Timeout, which names a rank that does not come.
  template <class T>
  std::vector<T> gather(std::span<const int> team, const T& mine, Tag tag) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMostBytes);
    std::vector<T> all(team.size());
    gather_bytes(team, &mine, all.data(), sizeof(T), tag);
    return all;
  }

  // Returns when every rank of the team has called it.
  void meet(std::span<const int> team, Tag tag) { gather(team, char{}, tag); }

  // The record that all ranks' hosts share: once it is complete, the run has failed.
  WaitRecord& shared_record() const { return *peers_.waits.record; }

  // Throws the fabric's error, if there is one.
  void check() { host_.synchronize(stream_); }

  // For a rank that ends after a failure, when ranks cannot agree any more: true once every rank has called it or its
  // process is gone; false at the limit. Also works after the host fabric's failure or abandon().
  [[nodiscard]] bool part(std::chrono::nanoseconds limit);

  // Ends the other ranks' waits, because this rank has failed.
  void abandon() { host_.abandon(); }

 private:
  void gather_bytes(std::span<const int> team, const void* mine, void* all, std::size_t each, Tag tag);
  std::byte* slot(std::uint64_t epoch, int from) const;

  Fabric& host_;
  Peers peers_;
  Ranks world_;
  ThreadPool pool_{1};
  Stream stream_{pool_};
  std::byte* slots_;                   // [2][world][kMostBytes], by the epoch's parity and by who wrote it
  std::uint64_t* flags_;               // [world], by who raises it
  std::uint64_t* parted_;              // [world], rank 0's: who has parted
  std::vector<std::uint64_t> epochs_;  // of each pair
  std::vector<ProcessIdentity> processes_;
};

}  // namespace heddle
