// A fabric of several machines that joins two: `inside`, of the ranks of this machine, and `across`, of all ranks. On the CPU
// they are shm and mpi (hierarchical.h).
//
// Ranks. Those of a machine follow each other; machines may have different numbers of them. `inside` numbers them from 0, and
// names them in errors as the run does (FabricOptions::first_rank).
//
// Memory. There is one heap. `inside` has given all of it to a single allocate(), and `across` was opened on those bytes. So an
// address has one offset in both, and a place is written by stores of ranks of this machine and by messages of all others.
// allocate(), release() and offset_of() are those of `across`, where all ranks meet.
//
// Transfers. What goes to a rank of this machine, this one among them, goes by `inside`, all else by `across`. A barrier of a team
// on one machine is that of `inside`, any other that of `across`. `across` counts a barrier by the ranks of its team, so a
// shorter one of one rank a machine could be taken for another team's; it is not used.
//
// Waits are those of `across`, whoever raises the flag: it lies in the memory of both, and `across` knows of every rank whom it waits
// for, so the error of a chain of waits through several machines names its last rank. (A barrier inside knows of its machine.)
//
// Order. As fabric.h says, for any mixture: before a message by one fabric a stream fences the other, so what it had put there
// is visible to whoever sees the message. Where nothing is under way a fence is a look at a list. A fence is that of both.
//
// Peer addresses. peers() reaches the ranks of this machine (addressable()); has(peer_addresses) is true only where these are all.
//
// Failure. A wait has the deadline of the fabric that it waits in. A failure of either ends the other's waits with the same
// words: a thread looks at both every kInterval. So all ranks of a machine see what any rank of another says.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/thread_pool.h"
#include "fabric/fabric.h"

namespace heddle {

class HierarchicalFabric : public Fabric {
 public:
  static constexpr std::chrono::milliseconds kInterval{10};

  // Throws InvalidArgument where the two are of other devices, or `inside` does not hold the ranks from `first` on.
  HierarchicalFabric(std::unique_ptr<Fabric> inside, std::unique_ptr<Fabric> across, int first);
  // As those of the two, `across` first.
  ~HierarchicalFabric() override;

  std::string_view name() const override { return "hierarchical"; }
  int rank() const override { return across_->rank(); }
  int size() const override { return across_->size(); }
  Device device() const override { return inside_->device(); }
  bool has(Capability capability) const override;
  DeviceShare device_share() const override { return inside_->device_share(); }

  SymmetricSpan allocate(std::size_t size_bytes) override;
  void release(const SymmetricSpan& span) override { across_->release(span); }
  std::optional<std::size_t> offset_of(const void* place, std::size_t bytes) const override {
    return across_->offset_of(place, bytes);
  }
  Peers peers(std::span<const int> team) const override;
  Ranks addressable() const override;
  using Fabric::peers;

  void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void begin_put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void begin_get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) override;
  void wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) override;
  void fence(Stream& stream) override;
  void barrier(Stream& stream, std::span<const int> team) override;
  void abandon(std::string_view cause) override;
  void synchronize(Stream& stream) override;
  using Fabric::barrier;

 private:
  // The fabric that reaches a rank, and the rank's number in it.
  struct Way {
    Fabric& fabric;
    int peer;
  };
  bool is_near(int peer) const { return peer >= first_ && peer < first_ + inside_->size(); }
  Way way_to(const Stream& stream, int peer, std::string_view operation) const;
  Way way_of_signal(Stream& stream, int peer, std::string_view operation);
  Ranks inside_ranks(std::span<const int> team) const;
  void watch(const std::stop_token& stop);
  // Whether one of the two has failed; the other then fails, too.
  bool pass_on_failure();

  std::unique_ptr<Fabric> inside_, across_;
  int first_;
  ThreadPool pool_{1};
  std::unique_ptr<Stream> idle_;  // by whose synchronize() a failure is seen
  std::mutex mutex_;              // around idle_
  std::condition_variable_any wake_;
  std::jthread watch_;  // last: it uses all of the above
};

}  // namespace heddle
