// The fabric `nvlink` (see nvlink.h for how it keeps the contract). Free of CUDA's headers.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "fabric/nvlink/host_exchange.h"
#include "fabric/nvlink/nvlink.h"
#include "fabric/nvlink/peer_memory.h"
#include "fabric/nvlink/recorded_waits.h"
#include "fabric/nvlink/team_table.h"
#include "fabric/symmetric_heap.h"

namespace heddle {

// An NCCL object whose operations have no deadline and must be ended from outside.
class Abortable {
 public:
  virtual void abort() = 0;

 protected:
  ~Abortable() = default;
};

// A WaitRecord that both kernels and the host access.
class PinnedRecord {
 public:
  PinnedRecord();
  ~PinnedRecord();
  PinnedRecord(const PinnedRecord&) = delete;
  PinnedRecord& operator=(const PinnedRecord&) = delete;

  WaitRecord& operator*() const { return *record_; }
  WaitRecord* get() const { return record_; }

 private:
  WaitRecord* record_;
};

class NvlinkFabric final : public Fabric {
 public:
  NvlinkFabric(std::unique_ptr<Fabric> host, int device, const NvlinkOptions& options);
  // Collective, unless the fabric has failed. Streams are idle by now. After a failure the heap is freed when every
  // other rank has unmapped it; if one has not by the deadline, the heap stays until the process ends, with a warning.
  ~NvlinkFabric() override;

  std::string_view name() const override { return "nvlink"; }
  int rank() const override { return exchange_.rank(); }
  int size() const override { return exchange_.size(); }
  Device device() const override { return {DeviceKind::cuda, device_}; }
  bool has(Capability capability) const override;
  DeviceShare device_share() const override { return share_; }

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

  // For NCCL's collectives on this fabric.
  HostExchange& exchange() { return exchange_; }
  const NvlinkOptions& options() const { return options_; }
  std::span<std::byte> heap_memory() const;
  bool failed() const;
  void add(Abortable* operations);
  void remove(Abortable* operations);

 private:
  struct Unopened {};
  NvlinkFabric(Unopened, std::unique_ptr<Fabric> host, int device, const NvlinkOptions& options);
  void check_peers();
  void probe();
  void wait_until_idle(std::chrono::nanoseconds limit) const;  // the GPU; throws Timeout
  void leave();                                                // after a failure: ends operations in flight

  std::byte* heap() const { return memory_->heaps()[static_cast<std::size_t>(rank())]; }
  // Translates `place`, an address in this rank's heap, to `peer`'s heap. Throws InvalidArgument when bytes lie outside
  // the heap.
  std::byte* at(int peer, const void* place, std::size_t bytes, std::string_view operation) const;
  std::uint64_t* flag_at(int peer, const std::uint64_t* flag, std::string_view operation) const;
  void reject_capture(const Stream& stream, std::string_view operation) const;
  WaitLimit waits() const;
  void copy(Stream& stream, void* destination, const void* source, std::size_t bytes);

  void clear(std::byte* place, std::size_t bytes);  // to zero; returns when done
  void drain(Stream& stream);  // returns when the stream is idle, and ends its waits once anything has failed
  void share_failure();        // a failure here ends all ranks' waits, and the reverse
  void end_vendor_operations();
  bool vendor_open();
  int named(int rank) const { return options_.fabric.first_rank + rank; }  // by which errors of waits name a rank

  std::unique_ptr<Fabric> host_;
  NvlinkOptions options_;
  int device_;
  HostExchange exchange_;
  TeamTable teams_;
  std::unique_ptr<PinnedRecord> record_;
  std::unique_ptr<RecordedWaits> recorded_waits_;
  std::unique_ptr<PeerMemory> memory_;  // null: the other ranks do not know of any memory
  SymmetricHeap allocated_;
  std::uint64_t* arrived_ = nullptr;  // [TeamTable::kMostTeams][size()], symmetric
  std::uint64_t* entered_ = nullptr;  // [TeamTable::kMostTeams], own
  DeviceShare share_;
  int exceptions_at_start_;
  std::mutex vendor_mutex_;
  std::vector<Abortable*> vendor_;
};

}  // namespace heddle
