// A rank of the fabric `shm`: loads and stores in host memory. It is the oracle of the other fabrics. An operation is a
// task of the CPU stream and is complete, also at its peer, when the task ends; so a fence has nothing to wait for.
//
// A barrier is one store and size - 1 waits: each rank counts the barriers of each team that it has entered, in a cache
// line that the others read. So barriers of different teams are independent, on one stream or on several; those of one
// team are in one stream, or in several that events order.
//
// Every rank throws the same error: Failure when a rank has ended or thrown, else Timeout.
#pragma once

#include <memory>

#include "fabric/fabric.h"
#include "fabric/shm/monitor.h"
#include "fabric/shm/world.h"
#include "fabric/symmetric_heap.h"

namespace heddle {

class ShmFabric final : public Fabric {
 public:
  // `monitor` is null if ranks are threads, which cannot be lost one by one. Of the options, deadline and first_rank.
  ShmFabric(std::shared_ptr<ShmWorld> world, int rank, const FabricOptions& options, std::unique_ptr<Monitor> monitor);
  // Streams are idle by now. A rank that is left by an exception ends the others' waits.
  ~ShmFabric() override;

  std::string_view name() const override { return "shm"; }
  int rank() const override { return rank_; }
  int size() const override { return world_->size(); }
  Device device() const override { return {}; }
  bool has(Capability capability) const override { return capability == Capability::peer_addresses; }

  SymmetricSpan allocate(std::size_t size_bytes) override;
  void release(const SymmetricSpan& span) override;
  std::optional<std::size_t> offset_of(const void* place, std::size_t bytes) const override;
  Peers peers(std::span<const int> team) const override;

  void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) override;
  void wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) override;
  void fence(Stream& stream) override;
  void barrier(Stream& stream, std::span<const int> team) override;
  void abandon(std::string_view cause) override;
  void synchronize(Stream& stream) override;

 private:
  RankSlot& slot(int rank) const { return world_->control().ranks[rank]; }
  // Returns when every rank has called it, with the value of each.
  std::vector<std::uint64_t> exchange(std::uint64_t value);
  // Waits until the word, which `from` raises, is >= target; throws past the deadline.
  void await(int from, const std::uint64_t* word, std::uint64_t target, Tag tag) const;
  [[noreturn]] void give_up() const;
  // Which ranks keep the waiting rank of the record, as far as it is known.
  std::string who_is_late(const WaitRecord& record) const;
  // By which errors name a rank.
  int named(int rank) const { return peers_.world_rank(rank); }

  std::shared_ptr<ShmWorld> world_;
  int rank_;
  SymmetricHeap heap_;
  Peers peers_;  // of the whole world
  std::uint64_t num_allocations_ = 0;
  int first_rank_;
  int exceptions_at_start_;
  std::unique_ptr<Monitor> monitor_;
};

}  // namespace heddle
