// How rank 0 talks to the other ranks of a model where each is a process: messages over the fabric's memory, beside the
// sums. Nobody spins: a rank that waits for a message naps, and looks meanwhile whether the others live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/stream.h"
#include "base/thread_pool.h"
#include "fabric/fabric.h"

namespace heddle {

class ControlLine {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;  // of a message
  static constexpr std::size_t kMostToAll = 4096;                  // of gather()

  // Bytes of each rank's symmetric heap.
  static std::size_t heap_bytes(int ranks);

  // Collective. `fabric`, on the CPU, outlives it. Throws what the fabric throws.
  explicit ControlLine(Fabric& fabric);
  ControlLine(const ControlLine&) = delete;
  ControlLine& operator=(const ControlLine&) = delete;

  // Rank 0, to every other rank. At most one more message than all of them have received may be under way: with a step,
  // whose sums need every rank, that is so. Throws what the fabric throws, and Failure for more than kMostBytes.
  void send(std::span<const std::byte> message);

  // Another rank: the next message, valid until the next but one is sent. Sleeps until it comes, without a deadline, as
  // an idle model waits for its user. Throws what the fabric throws once a rank is lost.
  std::span<const std::byte> receive();

  // Collective: what every rank gives, rank by rank. All give as many bytes.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine);

  // Collective: returns when every rank has called it.
  void meet() { fabric_.meet(); }

  // Throws the fabric's error, if it has one.
  void check() { fabric_.synchronize(stream_); }

 private:
  std::byte* slot(std::uint64_t message) const { return slots_ + message % 2 * slot_bytes(); }
  static std::size_t slot_bytes();

  Fabric& fabric_;
  ThreadPool pool_{1};
  Stream stream_{pool_};
  std::byte* slots_;         // [2], symmetric: size, then bytes
  std::byte* from_all_;      // [ranks][kMostToAll], symmetric
  std::uint64_t* num_sent_;  // symmetric: messages that have come
  std::vector<std::byte> staging_;
  std::uint64_t count_ = 0;  // sent, or received
};

}  // namespace heddle
